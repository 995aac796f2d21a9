/* SPDX-License-Identifier: Apache-2.0 */
/* The half of the C interface that is not one rotation. */
#ifndef POSENC_TESTS_C_ROWS_TEST_H_
#define POSENC_TESTS_C_ROWS_TEST_H_
/* Returns how many checks failed. */
int rows_gradients_caches_and_files(void);
int test_rerotation(void);
#endif
