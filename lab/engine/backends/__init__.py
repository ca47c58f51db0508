"""Backends that train a stack of models: in one batched call, or one by one."""
