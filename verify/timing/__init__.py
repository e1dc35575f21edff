"""The timing model: where a kernel's time goes, without a device. Everything here is labelled `modelled`."""
