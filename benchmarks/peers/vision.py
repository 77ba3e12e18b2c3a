"""Makes torchvision importable beside a CPU build of PyTorch. Import this before a peer that imports torchvision.

The wheel of torchvision on PyPI is built for CUDA. With a CPU build its compiled operators do not load, and it fails
when it describes two of them. Declaring these two is enough; nothing here calls them.
"""

import torch

LIBRARY = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
if torch.version.cuda is None:
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        LIBRARY.define(schema)  # type: ignore[no-untyped-call]
