"""Names of TVM's templates that are not here, and what to use instead.

In: what such names have in common.  Out: the refusal that a task by one of them gets.
Read next: `naming.py`.
"""

from tilewright.schedule.template import names_elsewhere

_TYPES = "Templates without it take tensors of int8, with out_dtype='int32'."
_MODEL = "relay.build and `tilewright tune` choose among kernels of Tilewright's own."

names_elsewhere(
    {
        "_int8": ("sums of bytes have no template of their own", _TYPES),
        "_tensorcore": (
            "matrix instructions are not there, float32 means float32",
            "The template without it takes the same arguments.",
        ),
        "_nnpack": (
            "NNPACK is not called",
            "Use conv2d_nchw_winograd.arm_cpu or conv2d_nchw_spatial_pack.arm_cpu.",
        ),
        **{
            library: ("libraries of others are not called", _MODEL)
            for library in ("_cudnn", "_cublas", "_cublaslt", "_cblas", "_mkl", "_dnnl", "_rocblas")
        },
        "conv3d_ncdhw_winograd": (
            "Winograd's transforms are of images of two axes",
            "Use conv3d_ncdhw.cuda.",
        ),
        "conv2d_nhwc_winograd": (
            "its transforms are scheduled otherwise here",
            "autotvm.task.extract_from_program gives tasks of Winograd's convolution NHWC.",
        ),
        "deformable_conv2d": (
            "its taps are read by a computation of their own",
            "relay.nn.deformable_conv2d compiles, and tunes with the rules.",
        ),
        "bitserial_": ("operands of a few bits are not there", "Use int8 and the float templates."),
        "_dsp": ("microcontrollers are not built for", "Use the templates for arm_cpu."),
        "_quantized": ("quantised weights are not interleaved", _TYPES),
    }
)
