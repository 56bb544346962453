"""Export: models as graphs for ONNX Runtime and OpenVINO, which run without torch."""
