"""OpenGL compute, headless, over EGL. No window system, no Python GL library: the few calls needed go through ctypes.

PyOpenGL would cost a third of a second to import and a microsecond per call, and moderngl has no program binaries.
"""

from __future__ import annotations

from .device import OpenGLDevice
from .listing import list_devices, open_device
from .requirements import hint, needs

__all__ = ["OpenGLDevice", "hint", "language", "list_devices", "needs", "open_device"]

language = "glsl"
