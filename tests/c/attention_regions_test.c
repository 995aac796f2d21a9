/* SPDX-License-Identifier: Apache-2.0 */
/* Score regions: of the call's own q and k, rotated by other positions, and of rotated copies. */
#include <math.h>
#include <string.h>

#include "attention_world.h"

static double near_base = 10000;
/* RoPE by the positions; by half of them, rounded down, for keys two or more before the query. */
static void turn(const double* x, int64_t p, double base, double* y) {
  for (int c = 0; c < D / 2; ++c) {
    const double angle = (double)p * pow(base, -2.0 * c / D);
    y[c] = x[c] * cos(angle) - x[c + D / 2] * sin(angle);
    y[c + D / 2] = x[c] * sin(angle) + x[c + D / 2] * cos(angle);
  }
}
static double region_score(int h, int i, int j) {
  const int group = i - j >= 2 ? 2 : 1;
  const double base = group == 2 ? 10000 : near_base;
  double x[D], y[D], s = 0;
  turn(q + (i * H + h) * D, i / group, base, x), turn(k + (j * H + h) * D, j / group, base, y);
  for (int c = 0; c < D; ++c) s += x[c] * y[c] / sqrt(D);
  return s;
}

/* Another rotation than that of the schemes, several regions, and structs that are cut. */
static void another_rotation(void) {
  const char* schemes[] = {"rope head_dim=4 base=50 pairing=half_split"};
  const posenc_attention_sizes sizes = {.struct_size = sizeof sizes, .heads = H, .head_dim = D};
  posenc_attention* a = NULL;
  OK(posenc_attention_create(schemes, 1, &sizes, &a, &error));
  posenc_plan* rope = NULL;
  OK(posenc_plan_from_scheme("rope head_dim=4 pairing=half_split", 0, POSENC_F64, NULL, &rope,
                             &error));
  int64_t half[T] = {0, 0, 1, 1, 2};
  PosencDLTensor qt = heads(q), kt = heads(k), vt = heads(v), ot = heads(out),
                 lt = dense(lse, 2, 64, 3, of_lse), hp = dense(half, 0, 64, 1, of_positions);
  posenc_score_region far = {.struct_size = sizeof far, .chunk = 1, .low = 2, .high = 9};
  far.query_positions = far.key_positions = &hp, far.rotation = rope;
  posenc_attention_call call = {.struct_size = sizeof call, .layout = "thd", .causal = 1};
  call.q = &qt, call.k = &kt, call.v = &vt, call.regions = &far, call.region_count = 1;
  near_base = 50;
  OK(posenc_attention_forward(a, &call, NULL, 0, &ot, &lt, &error));
  against_a_loop(region_score);
  /* The first region of a pair counts. */
  posenc_score_region two[2] = {far, far};
  two[1].low = INT64_MIN, two[1].rotation = NULL;
  two[1].query_positions = two[1].key_positions = NULL;
  call.regions = two, call.region_count = 2;
  REFUSED(posenc_attention_forward(a, &call, NULL, 0, &ot, &lt, &error),
          "query_positions of a region must be given");
  PosencDLTensor pt = dense(at, 0, 64, 1, of_positions);
  two[1].query_positions = two[1].key_positions = &pt;
  OK(posenc_attention_forward(a, &call, NULL, 0, &ot, &lt, &error));
  against_a_loop(region_score);
  two[1].struct_size = offsetof(posenc_score_region, d_q);
  REFUSED(posenc_attention_forward(a, &call, NULL, 0, &ot, &lt, &error),
          "must have the struct_size of the first");
  far.struct_size = offsetof(posenc_score_region, q) + 3;
  call.regions = &far, call.region_count = 1;
  REFUSED(posenc_attention_forward(a, &call, NULL, 0, &ot, &lt, &error), "regions.struct_size");
  posenc_plan_free(rope), posenc_attention_free(a);
}

void attention_regions(void) {
  const char* schemes[] = {"rope head_dim=4 pairing=half_split"};
  const posenc_attention_sizes sizes = {.struct_size = sizeof sizes, .heads = H, .head_dim = D};
  posenc_attention *a = NULL, *bare = NULL;
  OK(posenc_attention_create(schemes, 1, &sizes, &a, &error));
  OK(posenc_attention_create(NULL, 0, &sizes, &bare, &error));
  int64_t half[T] = {0, 0, 1, 1, 2};
  double x[2][N], y[2][N], d_x[N] = {0}, d_out[N];
  PosencDLTensor qt = heads(q), kt = heads(k), vt = heads(v), ot = heads(out),
                 lt = dense(lse, 2, 64, 3, of_lse), hp = dense(half, 0, 64, 1, of_positions);
  posenc_score_region far = {.struct_size = sizeof far, .chunk = 1, .low = 2, .high = INT64_MAX};
  far.query_positions = far.key_positions = &hp;
  posenc_attention_call call = {.struct_size = sizeof call, .layout = "thd", .causal = 1};
  call.q = &qt, call.k = &kt, call.v = &vt, call.region_count = 1;
  REFUSED(posenc_attention_forward(a, &call, NULL, 0, &ot, &lt, &error), "call.regions");
  call.regions = &far;
  OK(posenc_attention_forward(a, &call, NULL, 0, &ot, &lt, &error));
  against_a_loop(region_score);
  REFUSED(posenc_attention_forward(bare, &call, NULL, 0, &ot, &lt, &error),
          "need a rotary encoding");
  /* Rotated copies: of the call, and of the region. */
  for (int i = 0; i < T * H; ++i) {
    turn(q + i * D, i / H, 10000, x[0] + i * D), turn(k + i * D, i / H, 10000, y[0] + i * D);
    turn(q + i * D, half[i / H], 10000, x[1] + i * D),
        turn(k + i * D, half[i / H], 10000, y[1] + i * D);
  }
  PosencDLTensor xt[2] = {heads(x[0]), heads(x[1])}, yt[2] = {heads(y[0]), heads(y[1])},
                 dx = heads(d_x), d = heads(d_out), pt = dense(at, 0, 64, 1, of_positions);
  call.q = &xt[0], call.k = &yt[0], call.query_positions = call.key_positions = &pt;
  far.query_positions = far.key_positions = NULL, far.q = &xt[1], far.k = &yt[1];
  OK(posenc_attention_forward(bare, &call, NULL, 0, &ot, &lt, &error));
  against_a_loop(region_score);
  for (int i = 0; i < N; ++i) d_out[i] = cos(3.0 * i);
  far.d_k = &dx;
  REFUSED(posenc_attention_forward(bare, &call, NULL, 0, &ot, &lt, &error), "the backward pass");
  OK(posenc_attention_backward(bare, &call, NULL, 0, &ot, &d, NULL, NULL, NULL, NULL, 0, &error));
  far.d_k = NULL;
  for (int i = 0; i < N; i += 3) {
    const double kept = y[1][i];
    y[1][i] = kept + 1e-6;
    const double above = loss(bare, &call);
    y[1][i] = kept - 1e-6;
    CHECK(fabs((above - loss(bare, &call)) / 2e-6 - d_x[i]) < 1e-8);
    y[1][i] = kept;
  }
  posenc_attention_free(a), posenc_attention_free(bare);
  another_rotation();
}
