"""Where the kernels run: Rolling Forcing on Wan2.1."""
