"""The paper's image experiments: MNIST, CIFAR-10, CIFAR-100, out-of-distribution, rotated and corrupted images."""
