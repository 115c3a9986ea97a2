"""What a long computation needs of its process: Ctrl-C between steps, memory that stays, and a display of progress."""

from livi.running.ctrl_c import CtrlC
from livi.running.memory import kept_memory
from livi.running.progress import Progress

__all__ = ["CtrlC", "Progress", "kept_memory"]
