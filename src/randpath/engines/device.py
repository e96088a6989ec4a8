"""Whether a device is there."""

import torch

from randpath.errors import DeviceMissing


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have."""
    try:
        torch.empty(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise DeviceMissing(f"device {device!r} is not there: {str(error).splitlines()[0]}") from error
