  // A step's product, added to `rows` × `cols` elements from `out` on, whose rows are `out_pitch` apart:
  // alpha times rows of `depth` elements at `left`, `left_pitch` apart, times `panel`. What is there is multiplied by `keep`
  // first; with 0 it is not read. Not a function: PoCL's compiler keeps fewer of its values in registers.
  for (int j = 0; j < cols; j += NR) {
    for (int i = 0; i < rows; i += MR) {
      __local const float* below = panel + j;
      __global const float* beside[MR];
      float16 sum[MR][NV];
      #pragma unroll
      for (int r = 0; r < MR; r++) {
        // The last row stands in for those after it, which are not stored.
        beside[r] = left + (size_t)LESSER(i + r, rows - 1) * left_pitch;
        #pragma unroll
        for (int v = 0; v < NV; v++) sum[r][v] = 0.0f;
      }
      for (int p = 0; p < depth; p++) {
        float16 x[NV];
        #pragma unroll
        for (int v = 0; v < NV; v++) x[v] = *(__local const sixteen*)(below + p * PITCH + v * 16);
        #pragma unroll
        for (int r = 0; r < MR; r++) {
          #pragma unroll
          for (int v = 0; v < NV; v++) sum[r][v] += beside[r][p] * x[v];
        }
      }
      __global float* to = out + (size_t)i * out_pitch + j;
      if (j + NR <= cols) {
        #pragma unroll
        for (int r = 0; r < MR; r++, to += out_pitch) {
          if (i + r < rows) {
            #pragma unroll
            for (int v = 0; v < NV; v++) {
              __global sixteen* at = (__global sixteen*)(to + v * 16);
              *at = keep != 0.0f ? alpha * sum[r][v] + keep * *at : alpha * sum[r][v];
            }
          }
        }
      } else {
        float one[MR][NR];
        #pragma unroll
        for (int r = 0; r < MR; r++) {
          #pragma unroll
          for (int v = 0; v < NV; v++) *(sixteen*)(one[r] + v * 16) = alpha * sum[r][v];
        }
        for (int r = 0; r < LESSER(MR, rows - i); r++, to += out_pitch)
          for (int q = 0; q < LESSER(NR, cols - j); q++) to[q] = keep != 0.0f ? one[r][q] + keep * to[q] : one[r][q];
      }
    }
  }
