"""What several test files share: networks, data, short fits, damaged files, and other processes."""
