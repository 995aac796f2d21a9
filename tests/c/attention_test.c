/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with position terms from C: against a loop written out here, gradients against
   differences, and what is refused. */
#include "attention_test.h"

#include <math.h>
#include <string.h>

#include "attention_world.h"

static double softcap = 0;
static int after_terms = 0; /* whether the cap holds the table too */

static double cap(double x) {
  return softcap == 0 ? x : softcap * tanh(x / softcap);
}
/* T5's buckets of a decoder with 8 buckets: 0 1 2 3 are exact. */
static double t5_score(int h, int i, int j) {
  const double bias = table[(i - j < 4 ? i - j : 4) * H + h];
  double s = 0;
  for (int c = 0; c < D; ++c) s += q[(i * H + h) * D + c] * k[(j * H + h) * D + c];
  return after_terms ? cap(s + bias) : cap(s) + bias;
}

/* A scale of 0 counts where has_scale says so: weights are uniform over the keys up to one's own. */
static void zero_scale(void) {
  posenc_attention_sizes sizes = {.struct_size = sizeof sizes, .heads = H, .head_dim = D};
  posenc_attention* a = NULL;
  sizes.scale = 0.5;
  REFUSED(posenc_attention_create(NULL, 0, &sizes, &a, &error), "sizes.has_scale");
  sizes.has_scale = 1, sizes.scale = 0;
  OK(posenc_attention_create(NULL, 0, &sizes, &a, &error));
  PosencDLTensor qt = heads(q), kt = heads(k), vt = heads(v), ot = heads(out);
  const posenc_attention_call call = {
      .struct_size = sizeof call, .layout = "thd", .q = &qt, .k = &kt, .v = &vt, .causal = 1};
  OK(posenc_attention_forward(a, &call, NULL, 0, &ot, NULL, &error));
  for (int i = 0; i < T; ++i)
    for (int c = 0; c < H * D; ++c) {
      double mean = 0;
      for (int j = 0; j <= i; ++j) mean += v[j * H * D + c] / (i + 1);
      CHECK(fabs(out[i * H * D + c] - mean) < 1e-15);
    }
  posenc_attention_free(a);
}

static posenc_attention* t5(void) {
  const char* schemes[] = {"t5 bidirectional=false num_buckets=8 max_distance=40"};
  const posenc_attention_sizes sizes = {.struct_size = sizeof sizes, .heads = H, .head_dim = D};
  posenc_attention* a = NULL;
  OK(posenc_attention_create(schemes, 1, &sizes, &a, &error));
  return a;
}

static void gradients(posenc_attention* a, const posenc_attention_call* call) {
  double d_out[N], d_q[N] = {0}, d_table[BUCKETS * H] = {0};
  for (int i = 0; i < N; ++i) d_out[i] = cos(3.0 * i);
  PosencDLTensor o = heads(out), d = heads(d_out), dq = heads(d_q),
                 dt = dense(d_table, 2, 64, 2, of_table);
  const posenc_named_tensor named = {"table", &dt};
  loss(a, call);
  OK(posenc_attention_backward(a, call, NULL, 0, &o, &d, &dq, NULL, NULL, &named, 1, &error));
  double* const numbers[] = {q, table};
  const double* const slopes[] = {d_q, d_table};
  const int count[] = {N, BUCKETS * H};
  for (int n = 0; n < 2; ++n)
    for (int i = 0; i < count[n]; i += 3) {
      const double kept = numbers[n][i], e = 1e-6;
      PosencDLTensor p = dense(at, 0, 64, 1, of_positions), t = dense(table, 2, 64, 2, of_table);
      const posenc_named_tensor parameter = {"table", &t};
      double f[2];
      for (int side = 0; side < 2; ++side) {
        numbers[n][i] = kept + (side ? e : -e);
        OK(posenc_attention_lower(a, &parameter, 1, &p, &p, &error));
        f[side] = loss(a, call);
      }
      numbers[n][i] = kept;
      OK(posenc_attention_lower(a, &parameter, 1, &p, &p, &error));
      CHECK(fabs((f[1] - f[0]) / (2 * e) - slopes[n][i]) < 1e-8);
    }
}

static void soft_caps(posenc_attention* a, posenc_attention_call call) {
  PosencDLTensor o = heads(out), l = dense(lse, 2, 64, 3, of_lse);
  call.softcap_after_terms = 1;
  REFUSED(posenc_attention_forward(a, &call, NULL, 0, &o, &l, &error),
          "softcap_after_terms needs a softcap");
  softcap = call.softcap = 0.7;
  for (after_terms = 0; after_terms < 2; ++after_terms) {
    call.softcap_after_terms = after_terms;
    OK(posenc_attention_forward(a, &call, NULL, 0, &o, &l, &error));
    against_a_loop(t5_score);
    gradients(a, &call);
  }
  /* A program of an older header has no such member. */
  call.struct_size = offsetof(posenc_attention_call, softcap_after_terms);
  after_terms = 0;
  OK(posenc_attention_forward(a, &call, NULL, 0, &o, &l, &error));
  against_a_loop(t5_score);
  softcap = 0;
}

/* Keys and values in q8_0 blocks: a scale of 2^-6, and bytes that are small numbers. */
static void keys_in_blocks(void) {
  enum { B = 34 };
  static uint8_t blocks[2][T * B];
  static double wide_q[32], wide_out[32];
  for (int n = 0; n < 2; ++n)
    for (int j = 0; j < T; ++j) {
      blocks[n][j * B] = 0x00, blocks[n][j * B + 1] = 0x24;
      for (int c = 0; c < 32; ++c)
        blocks[n][j * B + 2 + c] = (uint8_t)(int8_t)((j * 7 + c * 3 + n) % 41 - 20);
    }
  for (int c = 0; c < 32; ++c) wide_q[c] = cos(2.0 * c);
  int64_t of_q[3] = {1, 1, 32}, of_blocks[3] = {T, 1, B};
  const posenc_attention_sizes sizes = {.struct_size = sizeof sizes, .heads = 1, .head_dim = 32};
  posenc_attention* a = NULL;
  OK(posenc_attention_create(NULL, 0, &sizes, &a, &error));
  PosencDLTensor qt = dense(wide_q, 2, 64, 3, of_q), kt = dense(blocks[0], 1, 8, 3, of_blocks),
                 vt = dense(blocks[1], 1, 8, 3, of_blocks), ot = dense(wide_out, 2, 64, 3, of_q);
  const posenc_attention_call call = {
      .struct_size = sizeof call, .layout = "thd", .q = &qt, .k = &kt, .v = &vt};
  OK(posenc_attention_forward(a, &call, NULL, 0, &ot, NULL, &error));
  double sum = 0, o[32] = {0};
  for (int j = 0; j < T; ++j) {
    double s = 0;
    for (int c = 0; c < 32; ++c)
      s += wide_q[c] * (int8_t)blocks[0][j * B + 2 + c] / 64.0 / sqrt(32.0);
    sum += exp(s);
    for (int c = 0; c < 32; ++c) o[c] += exp(s) * (int8_t)blocks[1][j * B + 2 + c] / 64.0;
  }
  for (int c = 0; c < 32; ++c) CHECK(fabs(wide_out[c] - o[c] / sum) < 1e-13);
  static double d_k[T * 32];
  int64_t of_k[3] = {T, 1, 32};
  PosencDLTensor dk = dense(d_k, 2, 64, 3, of_k);
  REFUSED(posenc_attention_backward(a, &call, NULL, 0, &ot, &ot, NULL, &dk, NULL, NULL, 0, &error),
          "gradient of k must not be given: q8_0 blocks have no gradient");
  posenc_attention_free(a);
}

int attention_by_name(void) {
  for (int i = 0; i < N; ++i) q[i] = sin(3.0 * i + 1), k[i] = sin(5.0 * i + 2), v[i] = sin(i + 3.0);
  for (int i = 0; i < BUCKETS * H; ++i) table[i] = sin(7.0 * i);
  for (int i = 0; i < T; ++i) at[i] = i;
  keys_in_blocks();
  posenc_attention* a = t5();
  CHECK(posenc_attention_arrays(a) == 1);
  posenc_attention_array_info info = {.struct_size = sizeof info};
  OK(posenc_attention_array(a, 0, &info, &error));
  CHECK(strcmp(info.name, "table") == 0 && info.rank == 2 && info.shape[0] == BUCKETS &&
        info.is_input == 0);
  REFUSED(posenc_attention_array(a, 1, &info, &error), "index");

  PosencDLTensor qt = heads(q), kt = heads(k), vt = heads(v), ot = heads(out),
                 lt = dense(lse, 2, 64, 3, of_lse), pt = dense(at, 0, 64, 1, of_positions),
                 tt = dense(table, 2, 64, 2, of_table);
  posenc_attention_call call = {.struct_size = sizeof call, .layout = "thd", .causal = 1};
  call.q = &qt, call.k = &kt, call.v = &vt;
  REFUSED(posenc_attention_forward(a, &call, NULL, 0, &ot, &lt, &error), "lower must be called");
  REFUSED(posenc_attention_lower(a, NULL, 0, &pt, &pt, &error), "table");
  const posenc_named_tensor parameter = {"table", &tt}, unknown = {"tabel", &tt};
  REFUSED(posenc_attention_lower(a, &unknown, 1, &pt, &pt, &error), "tabel");
  OK(posenc_attention_lower(a, &parameter, 1, &pt, &pt, &error));
  OK(posenc_attention_forward(a, &call, NULL, 0, &ot, &lt, &error));
  against_a_loop(t5_score);
  gradients(a, &call);
  soft_caps(a, call);
  attention_parts(a, call);

  REFUSED(posenc_attention_forward(a, &call, &parameter, 1, &ot, &lt, &error), "inputs");
  call.layout = NULL;
  REFUSED(posenc_attention_forward(a, &call, NULL, 0, &ot, &lt, &error), "layout");
  call.layout = "thd", call.v = NULL;
  REFUSED(posenc_attention_forward(a, &call, NULL, 0, &ot, &lt, &error), "call.v");
  call.struct_size = 3;
  REFUSED(posenc_attention_forward(a, &call, NULL, 0, &ot, &lt, &error), "call.struct_size");
  REFUSED(posenc_attention_forward(NULL, NULL, NULL, 0, NULL, NULL, &error), "call");
  const char* wrong[] = {"sinusoidal width=8"};
  const posenc_attention_sizes sizes = {.struct_size = sizeof sizes, .heads = H, .head_dim = D};
  posenc_attention* none = NULL;
  REFUSED(posenc_attention_create(wrong, 1, &sizes, &none, &error), "act in attention");
  CHECK(none == NULL);
  zero_scale();
  attention_regions();
  posenc_attention_free(a);
  posenc_attention_free(NULL);
  return attention_failures;
}
