/* SPDX-License-Identifier: Apache-2.0 */
#include <posenc/posenc_c.h>
#include <stdio.h>

int main(void) {
  posenc_error error = {.struct_size = sizeof error};
  posenc_plan* plan = NULL;
  if (posenc_plan_from_scheme("rope head_dim=8 base=10000 pairing=half_split", 0, POSENC_F32, NULL,
                              &plan, &error) != POSENC_OK) {
    printf("refused: %s\n", error.message);
    return 1;
  }
  posenc_plan_free(plan);
  printf("posenc %s: a plan in C\n", posenc_version());
  return 0;
}
