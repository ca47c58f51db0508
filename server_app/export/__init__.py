"""A finished experiment's model for others: safetensors, ONNX and a model card."""
