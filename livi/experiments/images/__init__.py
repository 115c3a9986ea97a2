"""The paper's image experiments: MNIST, CIFAR-10, CIFAR-100, pictures from elsewhere, turned and corrupted ones."""
