// SPDX-License-Identifier: Apache-2.0
// The C interface to PoPE.
#include "c/support.h"
#include "posenc/registry.h"
#include "posenc/rotary/pope.h"

using namespace posenc::c;

struct posenc_pope {
  posenc::PopePlan plan;
};

namespace {

posenc::Heads heads_of(const PosencDLTensor* t, const char* name, const char* layout) {
  const std::string_view order(&need(layout, "layout"));
  return posenc::heads(posenc::from_dlpack(need(t, name)), posenc::layout_from_name(order));
}

posenc::TensorView optional(const PosencDLTensor* t) {
  return t == nullptr ? posenc::TensorView{} : posenc::from_dlpack(*t);
}

}  // namespace

extern "C" {

posenc_status posenc_pope_from_scheme(const char* scheme, int64_t context, posenc_dtype dtype,
                                      const posenc_plan_options* options, posenc_pope** pope,
                                      posenc_error* error) {
  return guarded(error, [&] {
    const posenc::Encoding e = posenc::parse_encoding(std::string_view(&need(scheme, "scheme")));
    if (!std::holds_alternative<posenc::Pope>(e.scheme))
      posenc::refuse("c", "the scheme must be pope", posenc::card(e.scheme).name);
    if (context < 0)
      posenc::refuse_field("c", "context", "must not be negative", posenc::Index{context});
    posenc::PopePlan plan(posenc::resolve_spectrum(e, posenc::Context{context}), dtype_of(dtype),
                          options_of(options));
    posenc_pope*& out = need(pope, "pope");
    out = new posenc_pope{std::move(plan)};
  });
}

void posenc_pope_free(posenc_pope* pope) {
  delete pope;
}

posenc_status posenc_pope_apply(const posenc_pope* pope, const char* layout,
                                const PosencDLTensor* in, const PosencDLTensor* out,
                                const PosencDLTensor* positions, const PosencDLTensor* bias,
                                posenc_error* error) {
  return guarded(error, [&] {
    need(pope, "pope")
        .plan.apply(heads_of(in, "in", layout), heads_of(out, "out", layout),
                    positions_of(positions), optional(bias));
  });
}

posenc_status posenc_pope_gradient(const posenc_pope* pope, const char* layout,
                                   const PosencDLTensor* in, const PosencDLTensor* d_out,
                                   const PosencDLTensor* positions, const PosencDLTensor* bias,
                                   const PosencDLTensor* d_in, const PosencDLTensor* d_bias,
                                   posenc_error* error) {
  return guarded(error, [&] {
    need(pope, "pope")
        .plan.gradient(heads_of(in, "in", layout), heads_of(d_out, "d_out", layout),
                       positions_of(positions), optional(bias), heads_of(d_in, "d_in", layout),
                       optional(d_bias));
  });
}

}  // extern "C"
