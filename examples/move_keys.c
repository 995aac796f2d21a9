/* SPDX-License-Identifier: Apache-2.0 */
/* Moving cached keys in an engine's own memory, from C.
     llama.cpp: a layer's keys are [cells, heads * head size], here in q8_0 blocks; each cell has its position.
     vLLM: pages [blocks, block size, heads, head size], here f32; a request lists its blocks.
   Each move is compared with keys that were rotated for the new positions at once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "posenc/rotary/rerotation_c.h"

enum { HEADS = 2, DIM = 64, TOKEN = HEADS * DIM };
enum { CELLS = 12, KEEP = 4, DISCARD = 4, BLOCK_BYTES = 34, HEAD_BYTES = DIM / 32 * BLOCK_BYTES };
enum { PAGES = 6, PAGE = 4, SHARED = 2 };

static posenc_error error = {.struct_size = sizeof(posenc_error)};

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

/* Keys of `count` tokens before their rotation, token `first` being number 0, rotated at the positions. */
static void rotated(const posenc_plan* rope, int64_t first, int64_t* positions, int64_t count,
                    float* keys) {
  for (int64_t i = 0; i < count * TOKEN; ++i) keys[i] = sinf((float)(first * TOKEN + i) * 0.7f);
  int64_t shape[3] = {count, HEADS, DIM}, p_shape[1] = {count};
  const PosencDLTensor k = dense(keys, 2, 32, 3, shape), p = dense(positions, 0, 64, 1, p_shape);
  ok(posenc_apply(rope, "thd", NULL, &k, NULL, NULL, &p, POSENC_FORWARD, &error));
}

/* An f16 of a positive normal number, rounded down; and back. */
static uint16_t half_of(float x) {
  int exponent;
  const float fraction = frexpf(x, &exponent);
  return (uint16_t)(((exponent + 14) << 10) | (int)((fraction * 2 - 1) * 1024));
}
static float of_half(uint16_t h) {
  return ldexpf(1 + (float)(h & 1023) / 1024, (h >> 10) - 15);
}

static void quantize(const float* x, int count, uint8_t* to) {
  for (int b = 0; b < count / 32; ++b, x += 32, to += BLOCK_BYTES) {
    float most = 1e-3f;
    for (int i = 0; i < 32; ++i) most = fmaxf(most, fabsf(x[i]));
    const uint16_t scale = (uint16_t)(half_of(most / 127) + 1);
    memcpy(to, &scale, 2);
    for (int i = 0; i < 32; ++i) to[2 + i] = (uint8_t)(int8_t)lrintf(x[i] / of_half(scale));
  }
}

/* The largest error of a number of the blocks. */
static float worst_block(const uint8_t* blocks, const float* want, int count) {
  float worst = 0;
  for (int i = 0; i < count; ++i) {
    uint16_t scale;
    memcpy(&scale, blocks + i / 32 * BLOCK_BYTES, 2);
    const float x = of_half(scale) * (float)(int8_t)blocks[i / 32 * BLOCK_BYTES + 2 + i % 32];
    worst = fmaxf(worst, fabsf(x - want[i]));
  }
  return worst;
}

/* The context shift of llama.cpp: 4 tokens stay, 4 are dropped, the cells behind them move by -4. Cells that do
   not move are not rewritten. */
static int llama_cpp(const posenc_plan* rope) {
  static float keys[CELLS * TOKEN], want[CELLS * TOKEN];
  static uint8_t cells[CELLS * HEADS * HEAD_BYTES], before[sizeof cells];
  int64_t old_positions[CELLS], new_positions[CELLS];
  for (int64_t i = 0; i < CELLS; ++i) {
    old_positions[i] = i;
    new_positions[i] = i < KEEP + DISCARD ? i : i - DISCARD;
  }
  rotated(rope, 0, old_positions, CELLS, keys);
  rotated(rope, 0, new_positions, CELLS, want);
  quantize(keys, CELLS * TOKEN, cells);
  memcpy(before, cells, sizeof cells);

  posenc_rerotation* shift = NULL;
  ok(posenc_rerotation_create(rope, rope, POSENC_KEYS_Q8_0, 0, &shift, &error));
  int64_t shape[3] = {CELLS, HEADS, HEAD_BYTES}, p_shape[1] = {CELLS};
  const PosencDLTensor k = dense(cells, 1, 8, 3, shape);
  const PosencDLTensor from = dense(old_positions, 0, 64, 1, p_shape);
  const PosencDLTensor to = dense(new_positions, 0, 64, 1, p_shape);
  posenc_verdict verdict = POSENC_REFUSED;
  ok(posenc_rerotation_move(shift, "thd", &k, NULL, &from, &to, &verdict, &error));
  double bound = 0;
  ok(posenc_rerotation_bound(shift, 1, &bound, &error));
  const float off = worst_block(cells, want, CELLS * TOKEN);
  const int kept = memcmp(cells, before, KEEP * HEADS * HEAD_BYTES) == 0;
  printf("llama.cpp's cells, q8_0: %s, error %.4f (a move %.4f, and the first rounding)\n",
         verdict == POSENC_MOVED ? "moved" : "kept", (double)off, bound);
  posenc_rerotation_free(shift);
  return kept && verdict == POSENC_MOVED && (double)off < 2 * bound;
}

/* A prefix of two pages that another request cached at 0 .. 7 is used again at 4 .. 11: the shared pages are
   read, two free ones are written. */
static int vllm(const posenc_plan* rope) {
  static float pool[PAGES * PAGE * TOKEN], chunk[SHARED * PAGE * TOKEN],
      want[SHARED * PAGE * TOKEN];
  const int64_t blocks[SHARED] = {5, 1}, free_blocks[SHARED] = {0, 3};
  int64_t positions[SHARED * PAGE], moved[SHARED * PAGE];
  for (int64_t i = 0; i < SHARED * PAGE; ++i) positions[i] = i, moved[i] = i + 4;
  rotated(rope, 9, positions, SHARED * PAGE, chunk);
  rotated(rope, 9, moved, SHARED * PAGE, want);
  for (int64_t i = 0; i < SHARED; ++i)
    memcpy(pool + blocks[i] * PAGE * TOKEN, chunk + i * PAGE * TOKEN, sizeof(float) * PAGE * TOKEN);

  posenc_rerotation* shift = NULL;
  ok(posenc_rerotation_create(rope, rope, POSENC_KEYS_F32, 0, &shift, &error));
  int64_t shape[4] = {PAGES, PAGE, HEADS, DIM}, p_shape[2] = {SHARED, 1};
  int64_t old_first[SHARED] = {0, PAGE}, new_first[SHARED] = {4, 4 + PAGE};
  const PosencDLTensor k = dense(pool, 2, 32, 4, shape);
  const PosencDLTensor from = dense(old_first, 0, 64, 2, p_shape);
  const PosencDLTensor to = dense(new_first, 0, 64, 2, p_shape);
  const posenc_key_pages pages = {sizeof pages, blocks, SHARED, free_blocks, NULL};
  posenc_verdict verdict = POSENC_REFUSED;
  ok(posenc_rerotation_move_pages(shift, "bthd", &k, NULL, &pages, &from, &to, &verdict, &error));
  double worst = 0;
  int same = 1;
  for (int64_t i = 0; i < SHARED; ++i) {
    for (int64_t j = 0; j < PAGE * TOKEN; ++j)
      worst = fmax(worst, fabs((double)pool[free_blocks[i] * PAGE * TOKEN + j] -
                               (double)want[i * PAGE * TOKEN + j]));
    same = same && memcmp(pool + blocks[i] * PAGE * TOKEN, chunk + i * PAGE * TOKEN,
                          sizeof(float) * PAGE * TOKEN) == 0;
  }
  printf("vLLM's blocks, f32: %s to other blocks, error %.1e\n",
         verdict == POSENC_MOVED ? "moved" : "kept", worst);
  posenc_rerotation_free(shift);
  return same && verdict == POSENC_MOVED && worst < 1e-6;
}

int main(void) {
  posenc_plan* rope = NULL;
  ok(posenc_plan_from_scheme(
      "rope head_dim=64 pairing=half_split + yarn factor=4 original_context=4096", 0, POSENC_F32,
      NULL, &rope, &error));
  const int right = llama_cpp(rope) & vllm(rope);
  posenc_plan_free(rope);
  return right ? 0 : 1;
}
