/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding with a paged cache from C: keys are rotated once, when they are written, and attention
   finds them through a table of pages. Two sequences of different lengths grow side by side. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "posenc/posenc_c.h"

enum { SEQUENCES = 2, HEADS = 4, KEY_HEADS = 2, DIM = 16 };
enum { PAGE = 4, PAGES = 8, PAGES_OF_ROW = 4, STEPS = 6, TOKEN = KEY_HEADS * DIM };

static posenc_error error = {.struct_size = sizeof(posenc_error)};
static float cache_k[PAGES * PAGE * TOKEN], cache_v[PAGES * PAGE * TOKEN];
static int64_t table[SEQUENCES * PAGES_OF_ROW], lengths[SEQUENCES], used;

static void ok(posenc_status status) {
  if (status == POSENC_OK) return;
  fprintf(stderr, "%s\n", error.message);
  exit(1);
}

static PosencDLTensor dense(void* data, uint8_t code, uint8_t bits, int32_t rank, int64_t* shape) {
  PosencDLTensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.device.device_type = 1; /* CPU */
  t.ndim = rank;
  t.dtype.code = code;
  t.dtype.bits = bits;
  t.dtype.lanes = 1;
  t.shape = shape;
  return t;
}

/* What a model's projections would compute for a token. */
static void project(int64_t sequence, int64_t position, int kind, float* to, int count) {
  for (int i = 0; i < count; ++i) to[i] = sinf((float)(3 * sequence + 5 * position + 7 * kind + i));
}

/* Rotated key and value of the sequence's next token. */
static void append(int64_t s, const float* key, const float* value) {
  const int64_t at = lengths[s]++;
  if (at % PAGE == 0) table[s * PAGES_OF_ROW + at / PAGE] = used++;
  const int64_t slot = (table[s * PAGES_OF_ROW + at / PAGE] * PAGE + at % PAGE) * TOKEN;
  memcpy(cache_k + slot, key, sizeof(float) * TOKEN);
  memcpy(cache_v + slot, value, sizeof(float) * TOKEN);
}

/* Keys of one token of each sequence, from `lengths` on, go to the cache; q is rotated. */
static void rotate_and_append(const posenc_plan* rope, float* q, float* k, const float* v) {
  int64_t q_shape[4] = {SEQUENCES, 1, HEADS, DIM}, k_shape[4] = {SEQUENCES, 1, KEY_HEADS, DIM};
  int64_t p_shape[2] = {SEQUENCES, 1};
  const PosencDLTensor qt = dense(q, 2, 32, 4, q_shape), kt = dense(k, 2, 32, 4, k_shape);
  const PosencDLTensor pt = dense(lengths, 0, 64, 2, p_shape);
  ok(posenc_apply(rope, "bthd", &qt, &kt, NULL, NULL, &pt, POSENC_FORWARD, &error));
  for (int64_t s = 0; s < SEQUENCES; ++s) append(s, k + s * TOKEN, v + s * TOKEN);
}

int main(void) {
  posenc_plan* rope = NULL;
  ok(posenc_plan_from_scheme("rope head_dim=16 pairing=half_split", 0, POSENC_F32, NULL, &rope,
                             &error));
  const posenc_attention_sizes sizes = {
      .struct_size = sizeof sizes, .heads = HEADS, .head_dim = DIM, .key_heads = KEY_HEADS};
  posenc_attention* attention = NULL; /* no scheme: keys are rotated already */
  ok(posenc_attention_create(NULL, 0, &sizes, &attention, &error));
  int64_t one[1] = {1}, zero = 0;
  const PosencDLTensor place = dense(&zero, 0, 64, 1, one); /* nothing goes by distance */
  ok(posenc_attention_lower(attention, NULL, 0, &place, &place, &error));

  float q[SEQUENCES * HEADS * DIM], k[SEQUENCES * TOKEN], v[SEQUENCES * TOKEN];
  float out[SEQUENCES * HEADS * DIM];
  int64_t q_shape[4] = {SEQUENCES, 1, HEADS, DIM}, page_shape[4] = {PAGES, PAGE, KEY_HEADS, DIM};
  int64_t table_shape[2] = {SEQUENCES, PAGES_OF_ROW}, length_shape[1] = {SEQUENCES};
  const PosencDLTensor qt = dense(q, 2, 32, 4, q_shape), ot = dense(out, 2, 32, 4, q_shape);
  const PosencDLTensor kt = dense(cache_k, 2, 32, 4, page_shape);
  const PosencDLTensor vt = dense(cache_v, 2, 32, 4, page_shape);
  const PosencDLTensor tt = dense(table, 0, 64, 2, table_shape);
  const PosencDLTensor lt = dense(lengths, 0, 64, 1, length_shape);
  const posenc_attention_call call = {.struct_size = sizeof call,
                                      .layout = "bthd",
                                      .q = &qt,
                                      .k = &kt,
                                      .v = &vt,
                                      .block_table = &tt,
                                      .key_length = &lt};
  for (int step = 0; step < STEPS; ++step) {
    for (int64_t s = 0; s < SEQUENCES; ++s) {
      project(s, lengths[s], 0, q + s * HEADS * DIM, HEADS * DIM);
      project(s, lengths[s], 1, k + s * TOKEN, TOKEN);
      project(s, lengths[s], 2, v + s * TOKEN, TOKEN);
    }
    rotate_and_append(rope, q, k, v);
    ok(posenc_attention_forward(attention, &call, NULL, 0, &ot, NULL, &error));
  }

  /* The same by hand for the first head of sequence 0: softmax over its keys in the cache. */
  double weight[STEPS], sum = 0, worst = 0;
  for (int j = 0; j < STEPS; ++j) {
    const float* key = cache_k + (table[j / PAGE] * PAGE + j % PAGE) * TOKEN;
    double score = 0;
    for (int c = 0; c < DIM; ++c) score += (double)q[c] * key[c];
    sum += weight[j] = exp(score / sqrt(DIM));
  }
  for (int c = 0; c < DIM; ++c) {
    double want = 0;
    for (int j = 0; j < STEPS; ++j)
      want += weight[j] / sum * cache_v[(table[j / PAGE] * PAGE + j % PAGE) * TOKEN + c];
    worst = fmax(worst, fabs(out[c] - want));
  }
  printf("%d tokens in %d pages; largest difference from a softmax by hand %.1e\n", STEPS,
         (int)used, worst);
  posenc_attention_free(attention);
  posenc_plan_free(rope);
  return worst < 1e-6 ? 0 : 1;
}
