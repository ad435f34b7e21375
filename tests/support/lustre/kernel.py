"""The files below which a Lustre client shows its parameters, made from what ``lctl get_param`` printed."""

#: What root alone may read of that which a fingerprint keeps (lustre/llite, osc: LDEBUGFS_SEQ_FOPS).
OF_ROOT = ("max_cached_mb", "import", "state")


def kernel(root, parameters, *, as_root=True):
    """Make the files below a root; without the right of root those of debugfs are left out."""
    for name, value in parameters.items():
        of_root = name.split(".")[-1] in OF_ROOT
        if of_root and not as_root:
            continue
        top = root / ("sys/kernel/debug/lustre" if of_root else "sys/fs/lustre")
        file = top.joinpath(*name.split("."))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
    return root
