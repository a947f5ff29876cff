#pragma OPENCL FP_CONTRACT ON
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
__kernel __attribute__((reqd_work_group_size(8, 1, 1)))
void vectors(const __global float* restrict f_in, const __global double* restrict d_in, const __global int* restrict i_in, const __global long* restrict l_in, __global float* restrict f_out, __global double* restrict d_out, __global int* restrict i_out, __global long* restrict l_out, __global uchar* restrict mask) {
  const int t = (int)get_local_id(0);
  const float4 v = *(const __global float4*)(f_in + t * 8);
  const float4 v_1 = *(const __global float4*)(f_in + (t * 8 + 4));
  *(__global float4*)(f_out + t * 8) = (float4)(v.x * 2.0f, v.y * 2.0f, v.z * 2.0f, v.w * 2.0f);
  *(__global float4*)(f_out + (t * 8 + 4)) = (float4)(v_1.x * 2.0f, v_1.y * 2.0f, v_1.z * 2.0f, v_1.w * 2.0f);
  const double2 v_2 = *(const __global double2*)(d_in + t * 8);
  const float2 v_3 = *(const __global float2*)(f_in + t * 8);
  const double2 v_4 = *(const __global double2*)(d_in + (t * 8 + 2));
  const float2 v_5 = *(const __global float2*)(f_in + (t * 8 + 2));
  const double2 v_6 = *(const __global double2*)(d_in + (t * 8 + 4));
  const float2 v_7 = *(const __global float2*)(f_in + (t * 8 + 4));
  const double2 v_8 = *(const __global double2*)(d_in + (t * 8 + 6));
  const float2 v_9 = *(const __global float2*)(f_in + (t * 8 + 6));
  *(__global double2*)(d_out + t * 8) = (double2)(v_2.x + (double)v_3.x, v_2.y + (double)v_3.y);
  *(__global double2*)(d_out + (t * 8 + 2)) = (double2)(v_4.x + (double)v_5.x, v_4.y + (double)v_5.y);
  *(__global double2*)(d_out + (t * 8 + 4)) = (double2)(v_6.x + (double)v_7.x, v_6.y + (double)v_7.y);
  *(__global double2*)(d_out + (t * 8 + 6)) = (double2)(v_8.x + (double)v_9.x, v_8.y + (double)v_9.y);
  *(__global int4*)(i_out + t * 8) = *(const __global int4*)(i_in + t * 8);
  *(__global int4*)(i_out + (t * 8 + 4)) = *(const __global int4*)(i_in + (t * 8 + 4));
  const int4 v_10 = *(const __global int4*)(i_in + (t * 8 + 4));
  *(__global int4*)(i_out + (t * 8 + 4)) = (int4)(max(v_10.x, t), max(v_10.y, t + 3), max(v_10.z, t + 6), max(v_10.w, t + 9));
  const long2 v_11 = *(const __global long2*)(l_in + t * 8);
  const long2 v_12 = *(const __global long2*)(l_in + (t * 8 + 2));
  const long2 v_13 = *(const __global long2*)(l_in + (t * 8 + 4));
  const long2 v_14 = *(const __global long2*)(l_in + (t * 8 + 6));
  *(__global long2*)(l_out + t * 8) = (long2)(v_11.x - 1L, v_11.y - 1L);
  *(__global long2*)(l_out + (t * 8 + 2)) = (long2)(v_12.x - 1L, v_12.y - 1L);
  *(__global long2*)(l_out + (t * 8 + 4)) = (long2)(v_13.x - 1L, v_13.y - 1L);
  *(__global long2*)(l_out + (t * 8 + 6)) = (long2)(v_14.x - 1L, v_14.y - 1L);
  const float4 v_15 = *(const __global float4*)(f_in + t * 8);
  const int4 v_16 = *(const __global int4*)(i_in + t * 8);
  const float4 v_17 = *(const __global float4*)(f_in + (t * 8 + 4));
  const int4 v_18 = *(const __global int4*)(i_in + (t * 8 + 4));
  *(__global uchar4*)(mask + t * 8) = (uchar4)(v_15.x > (float)v_16.x, v_15.y > (float)v_16.y, v_15.z > (float)v_16.z, v_15.w > (float)v_16.w);
  *(__global uchar4*)(mask + (t * 8 + 4)) = (uchar4)(v_17.x > (float)v_18.x, v_17.y > (float)v_18.y, v_17.z > (float)v_18.z, v_17.w > (float)v_18.w);
}
