// SPDX-License-Identifier: Apache-2.0
// Node tests of ONNX's Attention (opsets 23, 24), through the operation attend.
#pragma once
#include "conformance/runner/check.h"
#include "conformance/runner/onnx_file.h"

namespace posenc::conformance {

// The check of a node whose tensors have the names of `node`: Q, K, V, attn_mask, past_key,
// past_value, nonpad_kv_seqlen -> Y, present_key, present_value, qk_matmul_output.
Json onnx_attention_check(const OnnxNode& node, const Arrays& tensors);
// The check and what it compares; `tensors` holds outputs too. Throws what attend throws.
Comparison run_onnx_attention(const OnnxNode& node, const Arrays& tensors);

}  // namespace posenc::conformance
