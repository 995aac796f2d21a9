/* SPDX-License-Identifier: Apache-2.0 */
/* Cached keys that move: tensors, listed pages, verdicts, bounds, refusals. */
#include "posenc/rotary/rerotation_c.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rows_test.h"

enum { kPages = 4, kSlots = 2, kHeads = 1, kDim = 8, kAll = kPages * kSlots * kHeads * kDim };

static int failures = 0;
static posenc_error error = {.struct_size = sizeof(posenc_error)};

static void check(int ok, const char* what, int line) {
  if (ok) return;
  ++failures;
  fprintf(stderr, "rerotation_test.c line %d: %s (%s)\n", line, what, error.message);
}
#define CHECK(x) check((x), #x, __LINE__)
#define OK(x) check((x) == POSENC_OK, #x, __LINE__)
#define REFUSED(x) check((x) == POSENC_INVALID_ARGUMENT, #x, __LINE__)

static PosencDLTensor dense(void* data, uint8_t code, uint8_t bits, int32_t rank, int64_t* shape) {
  PosencDLTensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.device.device_type = 1;
  t.ndim = rank;
  t.dtype.code = code;
  t.dtype.bits = bits;
  t.dtype.lanes = 1;
  t.shape = shape;
  return t;
}

static posenc_plan* rope(const char* text) {
  posenc_plan* plan = NULL;
  OK(posenc_plan_from_scheme(text, 0, POSENC_F64, NULL, &plan, &error));
  return plan;
}

int test_rerotation(void) {
  posenc_plan* from = rope("rope head_dim=8 base=10000 pairing=half_split");
  posenc_plan* to = rope("rope head_dim=8 base=10000 pairing=half_split + linear factor=2");
  posenc_plan* other = rope("rope head_dim=8 base=10000 pairing=interleaved");
  posenc_rerotation* move = NULL;
  OK(posenc_rerotation_create(from, to, POSENC_KEYS_F64, 0, &move, &error));
  double keys[kAll], want[kAll], x[kAll], bound = 0;
  int64_t shape[4] = {kPages, kSlots, kHeads, kDim}, p_shape[2] = {kPages, kSlots};
  int64_t old_at[kPages * kSlots] = {0, 1, 10, 11, 20, 21, 30, 31};
  int64_t new_at[kPages * kSlots] = {5, 6, 2, 3, 40, 41, 0, 1};
  for (int i = 0; i < kAll; ++i) keys[i] = want[i] = sin(i);
  const PosencDLTensor k = dense(keys, 2, 64, 4, shape), w = dense(want, 2, 64, 4, shape);
  const PosencDLTensor p = dense(old_at, 0, 64, 2, p_shape), q = dense(new_at, 0, 64, 2, p_shape);
  OK(posenc_apply(from, "bthd", NULL, &k, NULL, NULL, &p, POSENC_FORWARD, &error));
  OK(posenc_apply(to, "bthd", NULL, &w, NULL, NULL, &q, POSENC_FORWARD, &error));
  memcpy(x, keys, sizeof x);

  posenc_verdict verdict = POSENC_REFUSED;
  const PosencDLTensor copy = dense(x, 2, 64, 4, shape);
  OK(posenc_rerotation_move(move, "bthd", &copy, NULL, &p, &q, &verdict, &error));
  OK(posenc_rerotation_bound(move, 1, &bound, &error));
  CHECK(verdict == POSENC_MOVED);
  for (int i = 0; i < kAll; ++i) CHECK(fabs(x[i] - want[i]) < 4 * bound);

  /* Pages 2 and 0, by their first slots; the others stay. */
  const int64_t list[2] = {2, 0}, outside[2] = {0, 4}, twice[2] = {1, 1};
  int64_t old_first[2] = {20, 0}, new_first[2] = {40, 5}, first_shape[2] = {2, 1};
  const PosencDLTensor pf = dense(old_first, 0, 64, 2, first_shape);
  const PosencDLTensor qf = dense(new_first, 0, 64, 2, first_shape);
  const posenc_key_pages pages = {sizeof pages, list, 2, NULL, NULL};
  memcpy(x, keys, sizeof x);
  OK(posenc_rerotation_move_pages(move, "bthd", &copy, NULL, &pages, &pf, &qf, &verdict, &error));
  for (int i = 0; i < kAll; ++i) {
    const int page = i / (kSlots * kHeads * kDim);
    CHECK(page % 2 == 0 ? fabs(x[i] - want[i]) < 4 * bound : x[i] == keys[i]);
  }
  const posenc_key_pages bad = {sizeof bad, outside, 2, NULL, NULL};
  REFUSED(posenc_rerotation_move_pages(move, "bthd", &copy, NULL, &bad, &pf, &qf, NULL, &error));
  CHECK(strstr(error.message, "page numbers must be within the 4 pages of the pool, got 4") !=
        NULL);
  const posenc_key_pages same = {sizeof same, twice, 2, NULL, NULL};
  REFUSED(posenc_rerotation_move_pages(move, "bthd", &copy, NULL, &same, &pf, &qf, NULL, &error));
  const posenc_key_pages none = {sizeof none, NULL, 2, NULL, NULL};
  REFUSED(posenc_rerotation_move_pages(move, "bthd", &copy, NULL, &none, &pf, &qf, NULL, &error));
  const posenc_key_pages odd = {3, list, 2, NULL, NULL};
  REFUSED(posenc_rerotation_move_pages(move, "bthd", &copy, NULL, &odd, &pf, &qf, NULL, &error));
  REFUSED(posenc_rerotation_move_pages(move, "bthd", &copy, NULL, NULL, &pf, &qf, NULL, &error));
  REFUSED(posenc_rerotation_move(NULL, "bthd", &copy, NULL, &p, &q, NULL, &error));
  REFUSED(posenc_rerotation_bound(move, -1, &bound, &error));
  posenc_rerotation* wrong = NULL;
  REFUSED(posenc_rerotation_create(from, other, POSENC_KEYS_F64, 0, &wrong, &error));
  REFUSED(posenc_rerotation_create(from, to, POSENC_KEY_TYPE_NONE, 0, &wrong, &error));
  REFUSED(posenc_rerotation_create(from, to, POSENC_KEYS_Q8_0, 0, &wrong, &error));
  CHECK(strstr(error.message, "multiple of 32") != NULL && wrong == NULL);
  posenc_rerotation_free(move);
  posenc_rerotation_free(NULL);
  posenc_plan_free(from);
  posenc_plan_free(to);
  posenc_plan_free(other);
  return failures;
}
