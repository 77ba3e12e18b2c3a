"""Lets torchvision be imported beside a CPU build of PyTorch: import this first where a peer imports torchvision.

The wheel of torchvision on PyPI is built for CUDA. Beside a CPU build its compiled operators do not load, and it fails
when it describes two of them. Naming these two is enough; nothing here calls them.
"""

import torch

LIBRARY = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
if torch.version.cuda is None:
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        LIBRARY.define(schema)  # type: ignore[no-untyped-call]
