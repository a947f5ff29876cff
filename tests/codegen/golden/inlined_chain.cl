#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void chain(const __global float* restrict a, __global float* restrict plain, __global float* restrict guarded, __global float* restrict lanes) {
  const int i = (int)get_local_id(0);
  const float v = (a[i] + 0.5f) * 0.5f * (erf((a[i] + 0.5f) * 0.70710677f) + 1.0f) + 0.5f;
  const float v_1 = v * 0.5f * (erf(v * 0.70710677f) + 1.0f) + 0.5f;
  const float v_2 = v_1 * 0.5f * (erf(v_1 * 0.70710677f) + 1.0f) + 0.5f;
  const float v_3 = v_2 * 0.5f * (erf(v_2 * 0.70710677f) + 1.0f) + 0.5f;
  const float v_4 = v_3 * 0.5f * (erf(v_3 * 0.70710677f) + 1.0f) + 0.5f;
  const float v_5 = v_4 * 0.5f * (erf(v_4 * 0.70710677f) + 1.0f) + 0.5f;
  const float v_6 = v_5 * 0.5f * (erf(v_5 * 0.70710677f) + 1.0f) + 0.5f;
  const float v_7 = v_6 * 0.5f * (erf(v_6 * 0.70710677f) + 1.0f) + 0.5f;
  const float v_8 = v_7 * 0.5f * (erf(v_7 * 0.70710677f) + 1.0f) + 0.5f;
  const float v_9 = v_8 * 0.5f * (erf(v_8 * 0.70710677f) + 1.0f) + 0.5f;
  const float v_10 = v_9 * 0.5f * (erf(v_9 * 0.70710677f) + 1.0f) + 0.5f;
  plain[i] = v_10 * 0.5f * (erf(v_10 * 0.70710677f) + 1.0f);
  float v_11;
  if (i < 15) {
    const float v_12 = (a[i] + 0.5f) * 0.5f * (erf((a[i] + 0.5f) * 0.70710677f) + 1.0f) + 0.5f;
    const float v_13 = v_12 * 0.5f * (erf(v_12 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_14 = v_13 * 0.5f * (erf(v_13 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_15 = v_14 * 0.5f * (erf(v_14 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_16 = v_15 * 0.5f * (erf(v_15 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_17 = v_16 * 0.5f * (erf(v_16 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_18 = v_17 * 0.5f * (erf(v_17 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_19 = v_18 * 0.5f * (erf(v_18 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_20 = v_19 * 0.5f * (erf(v_19 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_21 = v_20 * 0.5f * (erf(v_20 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_22 = v_21 * 0.5f * (erf(v_21 * 0.70710677f) + 1.0f) + 0.5f;
    v_11 = v_22 * 0.5f * (erf(v_22 * 0.70710677f) + 1.0f);
  } else {
    v_11 = 0.0f;
  }
  guarded[i] = v_11 * 2.0f;
  if (i < 8) {
    const float2 v_23 = *(const __global float2*)(a + i * 2);
    const float v_24 = (v_23.x + 0.5f) * 0.5f * (erf((v_23.x + 0.5f) * 0.70710677f) + 1.0f) + 0.5f;
    const float v_25 = v_24 * 0.5f * (erf(v_24 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_26 = v_25 * 0.5f * (erf(v_25 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_27 = v_26 * 0.5f * (erf(v_26 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_28 = v_27 * 0.5f * (erf(v_27 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_29 = v_28 * 0.5f * (erf(v_28 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_30 = v_29 * 0.5f * (erf(v_29 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_31 = v_30 * 0.5f * (erf(v_30 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_32 = v_31 * 0.5f * (erf(v_31 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_33 = v_32 * 0.5f * (erf(v_32 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_34 = v_33 * 0.5f * (erf(v_33 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_35 = (v_23.y + 0.5f) * 0.5f * (erf((v_23.y + 0.5f) * 0.70710677f) + 1.0f) + 0.5f;
    const float v_36 = v_35 * 0.5f * (erf(v_35 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_37 = v_36 * 0.5f * (erf(v_36 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_38 = v_37 * 0.5f * (erf(v_37 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_39 = v_38 * 0.5f * (erf(v_38 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_40 = v_39 * 0.5f * (erf(v_39 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_41 = v_40 * 0.5f * (erf(v_40 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_42 = v_41 * 0.5f * (erf(v_41 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_43 = v_42 * 0.5f * (erf(v_42 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_44 = v_43 * 0.5f * (erf(v_43 * 0.70710677f) + 1.0f) + 0.5f;
    const float v_45 = v_44 * 0.5f * (erf(v_44 * 0.70710677f) + 1.0f) + 0.5f;
    *(__global float2*)(lanes + i * 2) = (float2)(v_34 * 0.5f * (erf(v_34 * 0.70710677f) + 1.0f), v_45 * 0.5f * (erf(v_45 * 0.70710677f) + 1.0f));
  }
}
