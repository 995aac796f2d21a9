/* SPDX-License-Identifier: Apache-2.0 */
/* Structs with their sizes, threads and executors, findings of models, lengths, memory. */
#ifndef POSENC_TESTS_C_STRUCTS_TEST_H_
#define POSENC_TESTS_C_STRUCTS_TEST_H_
/* Returns how many checks failed. */
int structs_executors_and_findings(void);
#endif
