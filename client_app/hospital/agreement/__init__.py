"""What a hospital agrees to: policy, approval and the terms of an experiment."""
