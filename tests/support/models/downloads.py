"""What comes back from a device, seen by torch: tensors that are copied to main memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Downloads(TorchFunctionMode):
    """Records the shapes of the tensors of each download on this thread: of copies one right after another.

    Copies of tensors without data, on torch's "meta" device, are zeros, or ones for integers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[list[tuple[int, ...]]] = []
        self._is_coming_back = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        comes_back = func is torch.Tensor.to and args[1:] == ("cpu",)
        if comes_back:
            if not self._is_coming_back:
                self.shapes.append([])
            self.shapes[-1].append(tuple(args[0].shape))
        self._is_coming_back = comes_back
        if comes_back and args[0].is_meta:
            return torch.full(args[0].shape, args[0].dtype == torch.int64, dtype=args[0].dtype)
        return func(*args, **(kwargs or {}))
