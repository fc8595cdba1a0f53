//kk: kernel gemm group(1,1,1) a:buffer:f4:r b:buffer:f4:r c:buffer:f4:rw alpha:scalar:f4 beta:scalar:f4 m:scalar:i4 n:scalar:i4 k:scalar:i4
#include "vectors.h"

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void gemm(__global const float* a, __global const float* b, __global float* c, const float alpha, const float beta,
          const int m, const int n, const int k) {
  __local float panel[KC * PITCH];
  const int most_rows = SHARE(m, (int)get_num_groups(1), MR);
  const int most_cols = SHARE(n, (int)get_num_groups(0), NR);
  const int row0 = (int)get_group_id(1) * most_rows;
  const int col0 = (int)get_group_id(0) * most_cols;
  const int rows = LESSER(most_rows, m - row0);
  const int cols = LESSER(most_cols, n - col0);
  const int left_pitch = k;
  const int out_pitch = n;
  __global float* out = c + (size_t)row0 * n + col0;

  const int step = SHARE(k, (k + KC - 1) / KC, 1);
  for (int k0 = 0; k0 < k; k0 += step) {
    const int depth = LESSER(step, k - k0);
    // Zeros after the last column, so that only the stores need to know where C ends.
    for (int p = 0; p < depth; p++) {
      __global const float* from = b + (size_t)(k0 + p) * n + col0;
      __local float* to = panel + p * PITCH;
      int j = 0;
      for (; j + 16 <= cols; j += 16) *(__local sixteen*)(to + j) = *(__global const sixteen*)(from + j);
      for (; j < cols; j++) to[j] = from[j];
      for (; j % NR != 0; j++) to[j] = 0.0f;
    }
    __global const float* left = a + (size_t)row0 * k + k0;
    // C is scaled by beta once; what earlier steps have added stays. With 0, C is not read: it may hold anything.
    const float keep = k0 == 0 ? beta : 1.0f;
#include "vector_product.h"
  }
}
