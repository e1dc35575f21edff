"""The timing model: where a kernel's time goes, without a device. Every number here is labelled `modelled`."""

from nkismith.verify.timing.profile import DmaUse, EngineUse, LineUse, Model, Profile, model, profile_trace

__all__ = ["DmaUse", "EngineUse", "LineUse", "Model", "Profile", "model", "profile_trace"]
