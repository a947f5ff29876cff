#pragma OPENCL FP_CONTRACT ON
static inline int tw_floordiv_int32(int a, int b) {
  return a / b - ((a % b != 0) & ((a % b < 0) != (b < 0)));
}

static inline int tw_floormod_int32(int a, int b) {
  return a % b + ((a % b != 0) & ((a % b < 0) != (b < 0))) * b;
}

__kernel __attribute__((reqd_work_group_size(12, 1, 1)))
void indices(__global int* restrict out) {
  const int t = (int)get_local_id(0);
  for (int u = 0; u < 3; ++u) {
    out[t * 3 + u] = -4;
    out[(t + 12) * 3 + u] = (t * 7 < t || ((t * 7 + t) % 3 == 1 && u != t) ? t * 7 : t) % 5;
    out[(t + 24) * 3 + u] = max(tw_floordiv_int32(t * 7, -4), t - max(t, u - 4));
    out[(t + 36) * 3 + u] = max(u - 4 + t * 7 - tw_floormod_int32(u, -4), t - (u - 4) - u % 2);
    out[(t + 48) * 3 + u] = min((u - 4) * -1, max(tw_floormod_int32(t * 7, -4), max(t * 7, u - 4)));
    out[(t + 60) * 3 + u] = (min(t * 7, 2) + t % 8) * 3;
    out[(t + 72) * 3 + u] = min(t % 8 % 2, max(t, t * 7) * 2);
    out[(t + 84) * 3 + u] = tw_floordiv_int32(tw_floormod_int32(t, -3) < min(u, t * 7) || (tw_floormod_int32(tw_floormod_int32(t, -3) + min(u, t * 7), 3) == 1 && u != t) ? tw_floormod_int32(t, -3) : min(u, t * 7), 5);
    out[(t + 96) * 3 + u] = max(max(u, u - 4) + max(u, u - 4), tw_floormod_int32(min(t, t * 7), -3));
    out[(t + 108) * 3 + u] = max(t - 4 + t % 3, u + 1 + (t * 7 < u || ((t * 7 + u) % 3 == 1 && u != t) ? t * 7 : u));
    out[(t + 120) * 3 + u] = 0 - t * 7 - max(t * 7 + t, 0);
    out[(t + 132) * 3 + u] = (u < t || ((u + t) % 3 == 1 && u != t) ? u : t) - min(u - 4, t * 7) + min(tw_floormod_int32(t * 7, -3), t + u);
    out[(t + 144) * 3 + u] = min(u - 4 < -8 || (u % 3 == 1 && u != t) ? u - 4 : -8, t * 7) + max(max(t, u), t % 3);
    out[(t + 156) * 3 + u] = (min(2, t) + (-6 < t || (t % 3 == 1 && u != t) ? -6 : t)) * -3;
    out[(t + 168) * 3 + u] = max((t + t) * -3, 0);
    out[(t + 180) * 3 + u] = tw_floordiv_int32(t * 7 < max(u - 4, u) || ((t * 7 + max(u - 4, u)) % 3 == 1 && u != t) ? t * 7 : max(u - 4, u), -4);
    int v;
    if (((u < t * 7 || ((u + t * 7) % 3 == 1 && u != t) ? u : t * 7) < 1 || (((u < t * 7 || ((u + t * 7) % 3 == 1 && u != t) ? u : t * 7) + 1) % 3 == 1 && u != t) ? (u < t * 7 || ((u + t * 7) % 3 == 1 && u != t) ? u : t * 7) : 1) < tw_floormod_int32(max(9, u), -3) || ((((u < t * 7 || ((u + t * 7) % 3 == 1 && u != t) ? u : t * 7) < 1 || (((u < t * 7 || ((u + t * 7) % 3 == 1 && u != t) ? u : t * 7) + 1) % 3 == 1 && u != t) ? (u < t * 7 || ((u + t * 7) % 3 == 1 && u != t) ? u : t * 7) : 1) + tw_floormod_int32(max(9, u), -3)) % 3 == 1 && u != t)) {
      v = (u < t * 7 || ((u + t * 7) % 3 == 1 && u != t) ? u : t * 7) < 1 || (((u < t * 7 || ((u + t * 7) % 3 == 1 && u != t) ? u : t * 7) + 1) % 3 == 1 && u != t) ? (u < t * 7 || ((u + t * 7) % 3 == 1 && u != t) ? u : t * 7) : 1;
    } else {
      v = tw_floormod_int32(max(9, u), -3);
    }
    out[(t + 192) * 3 + u] = v;
    out[(t + 204) * 3 + u] = min((min(u, u - 4) + 8) / 8 - 1, max(u - 4, u) - (t * 7 - u));
    out[(t + 216) * 3 + u] = t * 7 * -1 * -1 % 3;
    out[(t + 228) * 3 + u] = (u < t * 7 || ((u + t * 7) % 3 == 1 && u != t) ? u : t * 7) / 3 - (t * 7 - (u - 4)) % 5;
    out[(t + 240) * 3 + u] = (min(t * 7, u) < t * 7 * -3 || ((min(t * 7, u) + t * 7 * -3 + 231) % 3 == 1 && u != t) ? min(t * 7, u) : t * 7 * -3) - min(4, u) * -3;
    out[(t + 252) * 3 + u] = max(min(t * 7, u - 4), t + 6);
    out[(t + 264) * 3 + u] = u - (u - 4) - max(-5, u - 4) - ((u * -1 + 5) / 5 - 1);
    out[(t + 276) * 3 + u] = tw_floormod_int32(tw_floormod_int32(t, -4) < tw_floordiv_int32(u, -3) || (tw_floormod_int32(tw_floormod_int32(t, -4) + tw_floordiv_int32(u, -3), 3) == 1 && u != t) ? tw_floormod_int32(t, -4) : tw_floordiv_int32(u, -3), -4);
  }
}
