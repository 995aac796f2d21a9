/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over parts of the keys: merged, and the gradients of each from the merged result. */
#include <math.h>
#include <string.h>

#include "attention_world.h"

/* Backward from the whole's out and lse: the parts' gradients add up to those of one call. */
static void gradients_of_parts(posenc_attention* a, const posenc_attention_call* call,
                               posenc_attention_call pieces[2], int64_t order[2][3],
                               int64_t count[2][3]) {
  double d_out[N], d_sums[H * T], d_q[2][N] = {{0}}, d_k[N] = {0}, d_part[2][N] = {{0}},
                                  d_table[2][BUCKETS * H] = {{0}};
  for (int i = 0; i < N; ++i) d_out[i] = cos(3.0 * i);
  for (int i = 0; i < H * T; ++i) d_sums[i] = sin(2.0 * i);
  PosencDLTensor o = heads(out), l = dense(lse, 2, 64, 3, of_lse), d = heads(d_out),
                 dl = dense(d_sums, 2, 64, 3, of_lse), dk = heads(d_k),
                 dq[2] = {heads(d_q[0]), heads(d_q[1])},
                 dt[2] = {dense(d_table[0], 2, 64, 2, of_table),
                          dense(d_table[1], 2, 64, 2, of_table)};
  const posenc_named_tensor named[2] = {{"table", &dt[0]}, {"table", &dt[1]}};
  posenc_attention_call whole = *call;
  whole.log_sum_exp = &l, whole.d_log_sum_exp = &dl;
  REFUSED(posenc_attention_forward(a, &whole, NULL, 0, &o, NULL, &error), "the backward pass");
  OK(posenc_attention_backward(a, &whole, NULL, 0, &o, &d, &dq[0], &dk, NULL, named, 1, &error));
  for (int n = 0; n < 2; ++n) {
    PosencDLTensor part = dense(d_part[n], 2, 64, 3, count[n]);
    pieces[n].whole = 1, pieces[n].d_log_sum_exp = &dl;
    REFUSED(posenc_attention_backward(a, &pieces[n], NULL, 0, &o, &d, &dq[1], &part, NULL, NULL, 0,
                                      &error),
            "log_sum_exp must be f64 where the result is the whole's");
    pieces[n].log_sum_exp = &l;
    OK(posenc_attention_backward(a, &pieces[n], NULL, 0, &o, &d, &dq[1], &part, NULL, &named[1], 1,
                                 &error));
    for (int64_t j = 0; j < count[n][0]; ++j)
      for (int c = 0; c < H * D; ++c)
        CHECK(fabs(d_part[n][j * H * D + c] - d_k[order[n][j] * H * D + c]) < 1e-13);
  }
  for (int i = 0; i < N; ++i) CHECK(fabs(d_q[1][i] - d_q[0][i]) < 1e-13);
  for (int i = 0; i < BUCKETS * H; ++i) CHECK(fabs(d_table[1][i] - d_table[0][i]) < 1e-13);
}

/* Keys 0, 2, 4 and 1, 3 as two parts with their orders, merged into what the whole call gives. */
void attention_parts(posenc_attention* a, posenc_attention_call call) {
  PosencDLTensor o = heads(out), l = dense(lse, 2, 64, 3, of_lse);
  OK(posenc_attention_forward(a, &call, NULL, 0, &o, &l, &error));
  double want[N], d_out[N], d_part[2][N] = {{0}}, d_sum[2][H * T] = {{0}}, part[2][N],
                            sums[2][H * T];
  memcpy(want, out, sizeof want);
  int64_t order[2][3] = {{0, 2, 4}, {1, 3, 0}}, count[2][3] = {{3, H, D}, {2, H, D}};
  int64_t all[T] = {0, 1, 2, 3, 4}, of_all[2] = {1, T}, of_order[2][2] = {{1, 3}, {1, 2}};
  double keys[2][N], values[2][N];
  PosencDLTensor parts[2], logs[2], d_parts[2], d_logs[2], qo = dense(all, 0, 64, 2, of_all);
  PosencDLTensor kt[2], vt[2], ko[2];
  posenc_attention_call pieces[2] = {call, call};
  for (int n = 0; n < 2; ++n) {
    for (int64_t j = 0; j < count[n][0]; ++j) {
      memcpy(keys[n] + j * H * D, k + order[n][j] * H * D, sizeof(double) * H * D);
      memcpy(values[n] + j * H * D, v + order[n][j] * H * D, sizeof(double) * H * D);
    }
    kt[n] = dense(keys[n], 2, 64, 3, count[n]), vt[n] = dense(values[n], 2, 64, 3, count[n]);
    ko[n] = dense(order[n], 0, 64, 2, of_order[n]);
    posenc_attention_call* const piece = &pieces[n];
    piece->k = &kt[n], piece->v = &vt[n], piece->query_order = &qo, piece->key_order = &ko[n];
    piece->query_positions = &qo, piece->key_positions = &ko[n];
    parts[n] = heads(part[n]), logs[n] = dense(sums[n], 2, 64, 3, of_lse);
    d_parts[n] = heads(d_part[n]), d_logs[n] = dense(d_sum[n], 2, 64, 3, of_lse);
    OK(posenc_attention_forward(a, piece, NULL, 0, &parts[n], &logs[n], &error));
  }
  const PosencDLTensor *outs[] = {&parts[0], &parts[1]}, *log_sums[] = {&logs[0], &logs[1]};
  const PosencDLTensor *d_outs[] = {&d_parts[0], &d_parts[1]}, *d_sums[] = {&d_logs[0], NULL};
  OK(posenc_attention_merge("thd", outs, log_sums, 2, 0, &o, &l, &error));
  for (int i = 0; i < N; ++i) CHECK(fabs(out[i] - want[i]) < 1e-13);
  gradients_of_parts(a, &call, pieces, order, count);
  for (int i = 0; i < N; ++i) d_out[i] = cos(3.0 * i);
  PosencDLTensor d = heads(d_out);
  OK(posenc_attention_merge_backward("thd", outs, log_sums, 2, 0, &o, &l, &d, NULL, d_outs, d_sums,
                                     &error));
  for (int n = 0; n < 2; ++n) { /* of one number of each part and of the first sum */
    double* const number[] = {&part[n][7], &sums[0][1]};
    const double slope[] = {d_part[n][7], d_sum[0][1]};
    for (int which = 0; which < 2; ++which) {
      double f[2] = {0, 0};
      const double kept = *number[which];
      for (int side = 0; side < 2; ++side) {
        *number[which] = kept + (side ? 1e-6 : -1e-6);
        OK(posenc_attention_merge("thd", outs, log_sums, 2, 0, &o, NULL, &error));
        for (int i = 0; i < N; ++i) f[side] += out[i] * d_out[i];
      }
      *number[which] = kept;
      CHECK(fabs((f[1] - f[0]) / 2e-6 - slope[which]) < 1e-8);
    }
  }
  REFUSED(posenc_attention_merge("thd", NULL, log_sums, 2, 0, &o, &l, &error),
          "outs must not be null");
  posenc_attention_call half = call;
  half.query_order = &qo;
  REFUSED(posenc_attention_forward(a, &half, NULL, 0, &o, &l, &error),
          "query_order and key_order must be given together");
}
