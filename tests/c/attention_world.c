/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attention_world.h"

int attention_failures = 0;
posenc_error error = {.struct_size = sizeof(posenc_error)};
double q[N], k[N], v[N], out[N], lse[H * T], table[BUCKETS * H];
int64_t at[T];

void check(int ok, const char* what, const char* file, int line) {
  if (ok) return;
  ++attention_failures;
  fprintf(stderr, "%s line %d: %s (%s)\n", file, line, what, error.message);
}

PosencDLTensor dense(void* data, int code, int bits, int rank, int64_t* shape) {
  PosencDLTensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.device.device_type = 1; /* CPU */
  t.ndim = rank;
  t.dtype.code = (uint8_t)code;
  t.dtype.bits = (uint8_t)bits;
  t.dtype.lanes = 1;
  t.shape = shape;
  return t;
}
static int64_t of_heads[3] = {T, H, D};
int64_t of_table[2] = {BUCKETS, H}, of_lse[3] = {1, H, T}, of_positions[1] = {T};
PosencDLTensor heads(double* x) {
  return dense(x, 2, 64, 3, of_heads);
}

void against_a_loop(score_function* score) {
  for (int h = 0; h < H; ++h)
    for (int i = 0; i < T; ++i) {
      double sum = 0, o[D] = {0};
      for (int j = 0; j <= i; ++j) {
        const double w = exp(score(h, i, j));
        sum += w;
        for (int c = 0; c < D; ++c) o[c] += w * v[(j * H + h) * D + c];
      }
      CHECK(fabs(lse[h * T + i] - log(sum)) < 1e-13);
      for (int c = 0; c < D; ++c) CHECK(fabs(out[(i * H + h) * D + c] - o[c] / sum) < 1e-13);
    }
}

double loss(const posenc_attention* a, const posenc_attention_call* call) {
  PosencDLTensor o = heads(out);
  OK(posenc_attention_forward(a, call, NULL, 0, &o, NULL, &error));
  double sum = 0;
  for (int i = 0; i < N; ++i) sum += out[i] * cos(3.0 * i);
  return sum;
}
