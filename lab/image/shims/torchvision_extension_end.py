

# sparkgate lab: this wheel's operators need CUDA libraries. Declared, they let the package be imported beside a CPU
# torch; no language model calls them.
if not _has_ops():
    _lab_library = torch.library.Library("torchvision", "FRAGMENT")
    _lab_library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _lab_library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
