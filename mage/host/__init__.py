"""What the host build of CUDA C++ kernels consists of: see mage.hostcuda, which is the way in."""
