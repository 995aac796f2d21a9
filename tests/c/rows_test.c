/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's rows, gradients against finite differences, cached keys, tables in files. */
#include "rows_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "posenc/posenc_c.h"

enum { kTokens = 3, kHeads = 2, kDim = 8, kPairs = 4, kSize = kTokens * kHeads * kDim };

static int failures = 0;
static posenc_error error = {.struct_size = sizeof(posenc_error)};

static void check(int ok, const char* what, int line) {
  if (ok) return;
  ++failures;
  fprintf(stderr, "rows_test.c line %d: %s (%s)\n", line, what, error.message);
}
#define CHECK(x) check((x), #x, __LINE__)
#define OK(x) check((x) == POSENC_OK, #x, __LINE__)
#define REFUSED(x) check((x) == POSENC_INVALID_ARGUMENT, #x, __LINE__)

typedef struct {
  PosencDLTensor t;
  int64_t shape[4];
} Tensor;

static PosencDLTensor* f64(Tensor* x, double* data, int rank, int64_t a, int64_t b, int64_t c) {
  memset(x, 0, sizeof *x);
  x->shape[0] = a, x->shape[1] = b, x->shape[2] = c;
  x->t.data = data;
  x->t.device.device_type = 1;
  x->t.ndim = rank;
  x->t.dtype.code = 2;
  x->t.dtype.bits = 64;
  x->t.dtype.lanes = 1;
  x->t.shape = x->shape;
  return &x->t;
}
static PosencDLTensor* i64(Tensor* x, int64_t* data, int64_t n) {
  f64(x, (double*)(void*)data, 1, n, 0, 0);
  x->t.dtype.code = 0;
  return &x->t;
}

static double worst(const double* a, const double* b, int n) {
  double w = 0;
  for (int i = 0; i < n; ++i)
    if (!(fabs(a[i] - b[i]) <= w)) w = fabs(a[i] - b[i]);
  return w;
}

static posenc_plan* plan_of(const char* scheme) {
  posenc_plan* plan = NULL;
  OK(posenc_plan_from_scheme(scheme, 0, POSENC_F64, NULL, &plan, &error));
  return plan;
}

/* Rows of cos and sin of the plan's own angles give what the plan gives, looked up too. */
static void caller_rows(const posenc_plan* plan) {
  double x[kSize], own[kSize], by_rows[kSize], c[9 * kPairs], s[9 * kPairs];
  int64_t at[kTokens] = {0, 3, 8};
  for (int i = 0; i < kSize; ++i) x[i] = sin(i);
  for (int p = 0; p < 9; ++p)
    for (int i = 0; i < kPairs; ++i) {
      c[p * kPairs + i] = cos(p * pow(10000, -2.0 * i / kDim));
      s[p * kPairs + i] = sin(p * pow(10000, -2.0 * i / kDim));
    }
  Tensor q, a, b, tc, ts, p;
  f64(&q, x, 3, kTokens, kHeads, kDim);
  f64(&a, own, 3, kTokens, kHeads, kDim);
  f64(&b, by_rows, 3, kTokens, kHeads, kDim);
  f64(&tc, c, 2, 9, kPairs, 0);
  f64(&ts, s, 2, 9, kPairs, 0);
  i64(&p, at, kTokens);
  const posenc_rotate_mode f = POSENC_FORWARD;
  OK(posenc_apply(plan, "thd", &q.t, NULL, &a.t, NULL, &p.t, f, &error));
  OK(posenc_apply_caller_rows(plan, "thd", &q.t, NULL, &b.t, NULL, &tc.t, &ts.t, POSENC_HALF, &p.t,
                              f, &error));
  CHECK(worst(own, by_rows, kSize) < 1e-14);
  REFUSED(posenc_apply_caller_rows(plan, "thd", &q.t, NULL, &b.t, NULL, &tc.t, NULL, POSENC_HALF,
                                   &p.t, f, &error));
  REFUSED(posenc_apply_caller_rows(plan, "thd", &q.t, NULL, &b.t, NULL, &tc.t, &ts.t,
                                   (posenc_row_layout)7, &p.t, f, &error));
  REFUSED(posenc_apply_caller_rows(plan, "thd", &q.t, NULL, &b.t, NULL, &tc.t, &ts.t,
                                   POSENC_DUPLICATED, &p.t, f, &error));
  Tensor no_tokens, no_index;
  f64(&no_tokens, NULL, 3, 0, kHeads, kDim);
  i64(&no_index, NULL, 0);
  OK(posenc_apply_caller_rows(plan, "thd", &no_tokens.t, NULL, NULL, NULL, &tc.t, &ts.t,
                              POSENC_HALF, &no_index.t, f, &error));

  /* d loss / d cos of loss = sum w . out: every row of the table that a token uses. */
  double w[kSize], dc[9 * kPairs] = {0}, ds[9 * kPairs] = {0};
  for (int i = 0; i < kSize; ++i) w[i] = cos(3.0 * i);
  Tensor d, tdc, tds;
  f64(&d, w, 3, kTokens, kHeads, kDim);
  f64(&tdc, dc, 2, 9, kPairs, 0);
  f64(&tds, ds, 2, 9, kPairs, 0);
  OK(posenc_row_gradients(plan, "thd", &q.t, NULL, &d.t, NULL, &tc.t, &ts.t, POSENC_HALF, &p.t,
                          &tdc.t, &tds.t, &error));
  for (int which = 0; which < 2; ++which) {
    double* table = which == 0 ? c : s;
    const double* got = which == 0 ? dc : ds;
    for (int i = 0; i < 9 * kPairs; ++i) {
      double slope = 0;
      for (int sign = -1; sign <= 1; sign += 2) {
        const double kept = table[i];
        table[i] += sign * 1e-3;
        OK(posenc_apply_caller_rows(plan, "thd", &q.t, NULL, &b.t, NULL, &tc.t, &ts.t, POSENC_HALF,
                                    &p.t, f, &error));
        table[i] = kept;
        for (int j = 0; j < kSize; ++j) slope += sign * w[j] * by_rows[j] / 2e-3;
      }
      CHECK(fabs(slope - got[i]) < 1e-9); /* linear in the table */
    }
  }
}

/* d loss / d position by finite differences; the gain's gradient at gain 1 is the loss itself. */
static void phase_gradients(const posenc_plan* plan) {
  double x[kSize], w[kSize], out[kSize], at[kTokens] = {0.5, -3.25, 8};
  double d_position[kTokens] = {0}, d_gain[1] = {0}, d_frequency[kPairs] = {0};
  for (int i = 0; i < kSize; ++i) x[i] = sin(i), w[i] = cos(3.0 * i);
  Tensor q, d, o, p, tp, tg, tf;
  f64(&q, x, 3, kTokens, kHeads, kDim);
  f64(&d, w, 3, kTokens, kHeads, kDim);
  f64(&o, out, 3, kTokens, kHeads, kDim);
  f64(&p, at, 1, kTokens, 0, 0);
  f64(&tp, d_position, 3, 1, 1, kTokens);
  f64(&tg, d_gain, 1, 1, 0, 0);
  f64(&tf, d_frequency, 3, 1, 1, kPairs);
  size_t bytes = 0;
  OK(posenc_phase_gradients_workspace(plan, "thd", &q.t, NULL, &bytes, &error));
  void* workspace = malloc(bytes + 64);
  CHECK(workspace != NULL);
  OK(posenc_phase_gradients(plan, "thd", &q.t, NULL, &d.t, NULL, &p.t, 0, &tf.t, &tg.t, &tp.t,
                            workspace, bytes, &error));
  double loss = 0;
  OK(posenc_apply(plan, "thd", &q.t, NULL, &o.t, NULL, &p.t, POSENC_FORWARD, &error));
  for (int i = 0; i < kSize; ++i) loss += w[i] * out[i];
  CHECK(fabs(loss - d_gain[0]) < 1e-12);
  for (int t = 0; t < kTokens; ++t) {
    double slope = 0;
    for (int sign = -1; sign <= 1; sign += 2) {
      const double kept = at[t];
      at[t] += sign * 1e-5;
      OK(posenc_apply(plan, "thd", &q.t, NULL, &o.t, NULL, &p.t, POSENC_FORWARD, &error));
      at[t] = kept;
      for (int i = 0; i < kSize; ++i) slope += sign * w[i] * out[i] / 2e-5;
    }
    CHECK(fabs(slope - d_position[t]) < 1e-8);
  }
  /* Sum over pairs of frequency * its gradient = sum over tokens of position * its gradient. */
  double by_pair = 0, by_token = 0;
  for (int i = 0; i < kPairs; ++i) by_pair += pow(10000, -2.0 * i / kDim) * d_frequency[i];
  for (int t = 0; t < kTokens; ++t) by_token += at[t] * d_position[t];
  CHECK(fabs(by_pair - by_token) < 1e-12);
  REFUSED(posenc_phase_gradients(plan, "thd", &q.t, NULL, NULL, NULL, &p.t, 0, &tf.t, NULL, NULL,
                                 workspace, bytes, &error));
  if (bytes > 0)
    REFUSED(posenc_phase_gradients(plan, "thd", &q.t, NULL, &d.t, NULL, &p.t, 0, &tf.t, NULL, NULL,
                                   workspace, bytes - 1, &error));
  REFUSED(posenc_phase_gradients(plan, "thd", &q.t, NULL, &d.t, NULL, &p.t, 0, &tf.t, NULL, NULL,
                                 NULL, bytes + 1, &error));
  free(workspace);
}

/* Keys cached by one plan and moved to another are the keys that the other would have made. */
static void cached_keys(const posenc_plan* from) {
  posenc_plan* to = plan_of("rope head_dim=8 base=10000 pairing=half_split + linear factor=2");
  posenc_plan* other = plan_of("rope head_dim=8 base=10000 pairing=interleaved");
  posenc_verdict verdict = POSENC_REFUSED;
  posenc_error reason = {.struct_size = sizeof reason};
  OK(posenc_can_rerotate(from, to, &verdict, &reason, &error));
  CHECK(verdict == POSENC_MOVED);
  OK(posenc_can_rerotate(from, other, &verdict, &reason, &error));
  CHECK(verdict == POSENC_REFUSED && strlen(reason.message) > 0);
  OK(posenc_can_rerotate(from, to, &verdict, NULL, &error));
  REFUSED(posenc_can_rerotate(from, NULL, &verdict, NULL, &error));
  double x[kSize], cached[kSize], want[kSize];
  int64_t before[kTokens] = {0, 1, 2}, after[kTokens] = {5, 600, 7};
  for (int i = 0; i < kSize; ++i) x[i] = sin(i);
  Tensor k, c, w, b, a;
  f64(&k, x, 3, kTokens, kHeads, kDim);
  f64(&c, cached, 3, kTokens, kHeads, kDim);
  f64(&w, want, 3, kTokens, kHeads, kDim);
  i64(&b, before, kTokens);
  i64(&a, after, kTokens);
  OK(posenc_apply(from, "thd", NULL, &k.t, NULL, &c.t, &b.t, POSENC_FORWARD, &error));
  OK(posenc_apply(to, "thd", NULL, &k.t, NULL, &w.t, &a.t, POSENC_FORWARD, &error));
  OK(posenc_rerotate(from, to, "thd", &c.t, &b.t, &a.t, &error));
  CHECK(worst(cached, want, kSize) < 1e-14);
  REFUSED(posenc_rerotate(from, other, "thd", &c.t, &b.t, &a.t, &error));
  REFUSED(posenc_rerotate(from, to, "thd", NULL, &b.t, &a.t, &error));
  posenc_plan_free(to);
  posenc_plan_free(other);
}

static void tables_in_files(void) {
  posenc_plan* plan = NULL;
  posenc_plan* stretched = NULL;
  OK(posenc_plan_from_scheme("rope head_dim=8 pairing=half_split", 0, POSENC_F32, NULL, &plan,
                             &error));
  OK(posenc_plan_from_scheme("rope head_dim=8 pairing=half_split + linear factor=2", 0, POSENC_F32,
                             NULL, &stretched, &error));
  char path[256];
  const char* folder = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/posenc_c_%p.safetensors", folder != NULL ? folder : "/tmp",
           (void*)plan);
  posenc_table *table = NULL, *mapped = NULL;
  OK(posenc_table_create(plan, 32, POSENC_F32, POSENC_HALF, 0, &table, &error));
  OK(posenc_table_save(table, path, POSENC_HALF, &error));
  OK(posenc_table_map(path, plan, POSENC_HALF, 0, &mapped, &error));
  CHECK(posenc_table_size(mapped) == 32);
  /* Not the spec that it was made with: refused, whatever the kind. */
  posenc_table* wrong = NULL;
  CHECK(posenc_table_map(path, stretched, POSENC_HALF, 0, &wrong, &error) != POSENC_OK &&
        wrong == NULL);
  CHECK(posenc_table_map(path, plan, POSENC_PAIRS, 0, &wrong, &error) != POSENC_OK);
  CHECK(posenc_table_map("/nonexistent.npy", plan, POSENC_HALF, 0, &wrong, &error) ==
        POSENC_BAD_FILE);
  REFUSED(posenc_table_save(table, NULL, POSENC_HALF, &error));
  OK(posenc_table_replace(table, stretched, &error));
  /* The replaced table turns by the new frequencies: position 2 is now position 1. */
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, a[8], b[8];
  int64_t one = 1, two = 2;
  Tensor q, ta, tb, p1, p2;
  f64(&q, (double*)(void*)x, 3, 1, 1, 8);
  f64(&ta, (double*)(void*)a, 3, 1, 1, 8);
  f64(&tb, (double*)(void*)b, 3, 1, 1, 8);
  q.t.dtype.bits = ta.t.dtype.bits = tb.t.dtype.bits = 32;
  i64(&p1, &one, 1);
  i64(&p2, &two, 1);
  OK(posenc_apply_table(plan, "thd", &q.t, NULL, &ta.t, NULL, mapped, &p1.t, POSENC_FORWARD,
                        &error));
  OK(posenc_apply_table(stretched, "thd", &q.t, NULL, &tb.t, NULL, table, &p2.t, POSENC_FORWARD,
                        &error));
  CHECK(memcmp(a, b, sizeof a) == 0);
  remove(path);
  posenc_table_free(mapped);
  posenc_table_free(table);
  posenc_plan_free(plan);
  posenc_plan_free(stretched);
}

/* A kernel of the caller's own reads c0, s0, c1, s1 .. of each position; what it reads stays while
   the table is replaced. */
static void rows_of_tables(void) {
  posenc_plan* plan = NULL;
  posenc_table *table = NULL, *wrong = NULL;
  posenc_snapshot* held = NULL;
  PosencDLTensor rows;
  OK(posenc_plan_from_scheme("rope head_dim=8 base=10000 pairing=half_split", 0, POSENC_F32, NULL,
                             &plan, &error));
  OK(posenc_table_create(plan, 32, POSENC_F32, POSENC_PAIRS, 0, &table, &error));
  OK(posenc_table_snapshot(table, &held, &rows, &error));
  CHECK(rows.ndim == 2 && rows.shape[0] == 32 && rows.shape[1] == 8 && rows.strides[1] == 1);
  CHECK(rows.dtype.code == 2 && rows.dtype.bits == 32);
  OK(posenc_table_grow(table, 64, &error));
  OK(posenc_table_replace(table, plan, &error));
  posenc_table_free(table);
  const float* r = (const float*)rows.data + rows.byte_offset / sizeof(float);
  for (int p = 0; p < 32; ++p)
    for (int i = 0; i < kPairs; ++i) {
      const double angle = p * pow(10000, -i / 4.0);
      CHECK(fabs((double)r[p * rows.strides[0] + 2 * i] - cos(angle)) < 3.1e-8);
      CHECK(fabs((double)r[p * rows.strides[0] + 2 * i + 1] - sin(angle)) < 3.1e-8);
    }
  posenc_snapshot_free(held);
  posenc_snapshot_free(NULL);
  REFUSED(posenc_table_create(plan, 32, POSENC_F32, (posenc_row_layout)9, 0, &wrong, &error));
  REFUSED(posenc_table_snapshot(NULL, &held, &rows, &error));
  posenc_plan_free(plan);
}

/* y = [mu cos phi | mu sin phi], mu = ln(1 + e^x), phi = p base^(-i/d) + bias; its gradients by
   finite differences. */
static void pope(void) {
  enum { kWide = 2 * kDim, kOut = kTokens * kHeads * kWide };
  posenc_pope* plan = NULL;
  OK(posenc_pope_from_scheme("pope head_dim=8 base=10000", 0, POSENC_F64, NULL, &plan, &error));
  double x[kSize], y[kOut], w[kOut], bias[kHeads * kDim], dx[kSize], d_bias[kHeads * kDim] = {0};
  int64_t at[kTokens] = {0, 5, 131071};
  for (int i = 0; i < kSize; ++i) x[i] = 2 * sin(i);
  for (int i = 0; i < kOut; ++i) w[i] = cos(3.0 * i);
  for (int i = 0; i < kHeads * kDim; ++i) bias[i] = -0.3 * (i + 1);
  Tensor in, out, p, b, d, gx, gb;
  f64(&in, x, 3, kTokens, kHeads, kDim);
  f64(&out, y, 3, kTokens, kHeads, kWide);
  f64(&d, w, 3, kTokens, kHeads, kWide);
  f64(&gx, dx, 3, kTokens, kHeads, kDim);
  f64(&b, bias, 2, kHeads, kDim, 0);
  f64(&gb, d_bias, 2, kHeads, kDim, 0);
  i64(&p, at, kTokens);
  OK(posenc_pope_apply(plan, "thd", &in.t, &out.t, &p.t, &b.t, &error));
  const int t = 1, h = 1, i = 3, from = (t * kHeads + h) * kDim + i;
  const double phi = 5 * pow(10000, -3.0 / kDim) + bias[h * kDim + i], mu = log(1 + exp(x[from]));
  CHECK(fabs(y[(t * kHeads + h) * kWide + i] - mu * cos(phi)) < 1e-14);
  CHECK(fabs(y[(t * kHeads + h) * kWide + kDim + i] - mu * sin(phi)) < 1e-14);
  OK(posenc_pope_gradient(plan, "thd", &in.t, &d.t, &p.t, &b.t, &gx.t, &gb.t, &error));
  double* moved[2] = {x + from, bias + h * kDim + i};
  const double got[2] = {dx[from], d_bias[h * kDim + i]};
  for (int which = 0; which < 2; ++which) {
    double slope = 0;
    for (int sign = -1; sign <= 1; sign += 2) {
      const double kept = *moved[which];
      *moved[which] += sign * 1e-5;
      OK(posenc_pope_apply(plan, "thd", &in.t, &out.t, &p.t, &b.t, &error));
      *moved[which] = kept;
      for (int j = 0; j < kOut; ++j) slope += sign * w[j] * y[j] / 2e-5;
    }
    CHECK(fabs(slope - got[which]) < 1e-8);
  }
  OK(posenc_pope_apply(plan, "thd", &in.t, &out.t, &p.t, NULL, &error));
  REFUSED(posenc_pope_apply(plan, "thd", &in.t, &in.t, &p.t, NULL, &error));
  REFUSED(posenc_pope_apply(plan, "thd", &in.t, NULL, &p.t, NULL, &error));
  REFUSED(posenc_pope_apply(NULL, "thd", &in.t, &out.t, &p.t, NULL, &error));
  posenc_pope* none = NULL;
  REFUSED(posenc_pope_from_scheme("rope head_dim=8 pairing=half_split", 0, POSENC_F64, NULL, &none,
                                  &error));
  REFUSED(posenc_pope_from_scheme("pope head_dim=8", -1, POSENC_F64, NULL, &none, &error));
  CHECK(none == NULL);
  posenc_pope_free(plan);
  posenc_pope_free(NULL);
}

int rows_gradients_caches_and_files(void) {
  pope();
  posenc_plan* plan = plan_of("rope head_dim=8 base=10000 pairing=half_split");
  caller_rows(plan);
  phase_gradients(plan);
  cached_keys(plan);
  tables_in_files();
  rows_of_tables();
  posenc_plan_free(plan);
  return failures;
}
