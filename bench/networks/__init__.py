"""Networks for benchmarks, with random weights: each as an ONNX model and, where PyTorch is there, as a module of it."""
