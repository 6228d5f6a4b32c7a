"""Networks for benchmarks, with random weights: each as an ONNX model and, if PyTorch is installed, as a PyTorch
module."""
