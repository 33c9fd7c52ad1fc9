"""What the host build of CUDA C++ kernels consists of; ``translate`` makes the C++. See mage.cuda.hostcuda, which is the way in."""
