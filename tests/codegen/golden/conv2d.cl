#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(7, 16, 1)))
void conv2d(const __global float* restrict data, const __global float* restrict kernel_1, __global float* restrict conv) {
  const int xx = (int)get_local_id(0);
  const int ff = (int)get_local_id(1);
  __local float pad_temp_shared[648] __attribute__((aligned(16)));
  __local float kernel_shared[2304] __attribute__((aligned(16)));
  float conv_local[14];
  #pragma unroll
  for (int i = 0; i < 14; ++i) {
    conv_local[i] = 0.0f;
  }
  for (int rc_outer = 0; rc_outer < 2; ++rc_outer) {
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int ax0_ax1_ax2_ax3_fused = 0; ax0_ax1_ax2_ax3_fused < 6; ++ax0_ax1_ax2_ax3_fused) {
      if (ax0_ax1_ax2_ax3_fused * 112 + (ff * 7 + xx) < 648) {
        pad_temp_shared[ax0_ax1_ax2_ax3_fused * 112 + (ff * 7 + xx)] = (ax0_ax1_ax2_ax3_fused * 112 + (ff * 7 + xx)) % 81 / 9 >= 1 && (ax0_ax1_ax2_ax3_fused * 112 + (ff * 7 + xx)) % 81 / 9 < 8 && (ax0_ax1_ax2_ax3_fused * 112 + (ff * 7 + xx)) % 9 >= 1 && (ax0_ax1_ax2_ax3_fused * 112 + (ff * 7 + xx)) % 9 < 8 ? data[rc_outer * 392 + (ax0_ax1_ax2_ax3_fused * 112 + (ff * 7 + xx)) / 81 * 49 + (ax0_ax1_ax2_ax3_fused * 112 + (ff * 7 + xx)) % 81 / 9 * 7 + (ax0_ax1_ax2_ax3_fused * 112 + (ff * 7 + xx)) % 9 - 8] : 0.0f;
      }
    }
    #pragma unroll
    for (int ax0_ax1_ax2_ax3_fused_1 = 0; ax0_ax1_ax2_ax3_fused_1 < 21; ++ax0_ax1_ax2_ax3_fused_1) {
      if (ax0_ax1_ax2_ax3_fused_1 * 112 + (ff * 7 + xx) < 2304) {
        kernel_shared[ax0_ax1_ax2_ax3_fused_1 * 112 + (ff * 7 + xx)] = kernel_1[(ax0_ax1_ax2_ax3_fused_1 * 112 + (ff * 7 + xx)) / 72 * 144 + rc_outer * 72 + (ax0_ax1_ax2_ax3_fused_1 * 112 + (ff * 7 + xx)) % 72];
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int rc_inner = 0; rc_inner < 8; ++rc_inner) {
      #pragma unroll
      for (int ry = 0; ry < 3; ++ry) {
        #pragma unroll
        for (int rx = 0; rx < 3; ++rx) {
          #pragma unroll
          for (int ff_inner = 0; ff_inner < 2; ++ff_inner) {
            #pragma unroll
            for (int yy = 0; yy < 7; ++yy) {
              conv_local[ff_inner * 7 + yy] += pad_temp_shared[rc_inner * 81 + (yy + ry) * 9 + xx + rx] * kernel_shared[(ff * 2 + ff_inner) * 72 + rc_inner * 9 + ry * 3 + rx];
            }
          }
        }
      }
    }
  }
  #pragma unroll
  for (int ff_1 = 0; ff_1 < 2; ++ff_1) {
    #pragma unroll
    for (int yy_1 = 0; yy_1 < 7; ++yy_1) {
      conv[(ff * 2 + ff_1) * 49 + yy_1 * 7 + xx] = conv_local[ff_1 * 7 + yy_1];
    }
  }
}
