//kk: kernel conv2d group(1,1,1) x:buffer:f4:r weights:buffer:f4:r y:buffer:f4:rw c:scalar:i4 h:scalar:i4 w:scalar:i4 k:scalar:i4 oh:scalar:i4 ow:scalar:i4 pad_y:scalar:i4 pad_x:scalar:i4
#include "../gemm/vectors.h"

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void conv2d(__global const float* x, __global const float* weights, __global float* y, const int c, const int h, const int w,
            const int k, const int oh, const int ow, const int pad_y, const int pad_x) {
  __local float panel[KC * PITCH];
  const float alpha = 1.0f;
  const int taps = c * KERNEL_H * KERNEL_W;
  const int pixels = oh * ow;
  const int most_rows = SHARE(k, (int)get_num_groups(1), MR);
  const int most_cols = SHARE(pixels, (int)get_num_groups(0), NR);
  const int row0 = (int)get_group_id(1) * most_rows;
  const int col0 = (int)get_group_id(0) * most_cols;
  const int rows = LESSER(most_rows, k - row0);
  const int cols = LESSER(most_cols, pixels - col0);
  const int left_pitch = taps;
  const int out_pitch = pixels;
  const int number = (int)get_group_id(2);
  __global const float* image = x + (size_t)number * c * h * w;
  __global float* out = y + ((size_t)number * k + row0) * pixels + col0;

  int tap_y = 0;
  int tap_x = 0;
  const int step = SHARE(taps, (taps + KC - 1) / KC, 1);
  for (int t0 = 0; t0 < taps; t0 += step) {
    const int depth = LESSER(step, taps - t0);
    for (int p = 0; p < depth; p++) {
      // Output columns whose input at this tap lies inside the image: from `inside` to before `outside`.
      const int inside = (pad_x - tap_x + STRIDE_X - 1) / STRIDE_X;
      const int outside = (w + pad_x - tap_x + STRIDE_X - 1) / STRIDE_X;
      __local float* to = panel + p * PITCH;
      int oy = col0 / ow;
      int ox = col0 % ow;
      for (int rest = cols; rest > 0; oy++) {
        const int count = LESSER(rest, ow - ox);
        const int iy = oy * STRIDE_Y + tap_y - pad_y;
        const int last = iy < 0 || iy >= h ? 0 : LESSER(outside - ox, count);
        __global const float* from = image + (ptrdiff_t)iy * w + ox * STRIDE_X + tap_x - pad_x;
        int j = 0;
        for (; j < LESSER(inside - ox, count); j++) to[j] = 0.0f;
#if STRIDE_X == 1
        for (; j + 8 <= last; j += 8) *(__local eight*)(to + j) = *(__global const eight*)(from + j);
#endif
        for (; j < last; j++) to[j] = from[j * STRIDE_X];
        for (; j < count; j++) to[j] = 0.0f;
        to += count;
        rest -= count;
        ox = 0;
      }
      for (int j = cols; j % NR != 0; j++) *to++ = 0.0f;
      if (++tap_x == KERNEL_W) {
        tap_x = 0;
        if (++tap_y == KERNEL_H) {
          tap_y = 0;
          image += h * w;
        }
      }
    }
    __global const float* left = weights + (size_t)row0 * taps + t0;
    const float keep = t0 == 0 ? 0.0f : 1.0f;
#include "../gemm/vector_product.h"
  }
}
