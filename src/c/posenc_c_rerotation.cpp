// SPDX-License-Identifier: Apache-2.0
// The C interface to plans that move cached keys.
#include "c/support.h"
#include "posenc/rotary/rerotation_c.h"
#include "posenc/rotary/rerotation_plan.h"

using namespace posenc::c;
using posenc::Index;

struct posenc_rerotation {
  posenc::RerotationPlan plan;
};

namespace {

posenc::KeyType key_type_of(posenc_key_type t) {
  if (t < POSENC_KEYS_F64 || t > POSENC_KEYS_Q8_0)
    posenc::refuse("c", "the type must be one of posenc_key_type", static_cast<Index>(t));
  return static_cast<posenc::KeyType>(t);
}

posenc::Heads keys_of(const posenc::RerotationPlan& plan, const char* layout,
                      const PosencDLTensor& t) {
  const posenc::HeadsLayout order =
      posenc::layout_from_name(std::string_view(&need(layout, "layout")));
  return plan.type() == posenc::KeyType::q8_0 ? posenc::key_blocks(posenc::from_dlpack(t), order)
                                              : posenc::heads(posenc::from_dlpack(t), order);
}

posenc::KeyPages pages_of(const posenc_key_pages& given) {
  const posenc_key_pages p =
      taken(given, {sizeof(posenc_key_pages), nullptr, 0, nullptr, nullptr}, "pages");
  if (p.count > 0 && p.pages == nullptr)
    posenc::refuse_field("c", "pages.pages", "must not be null");
  const auto list = [&](const std::int64_t* data) {
    return data == nullptr ? std::span<const Index>() : std::span<const Index>(data, p.count);
  };
  return {list(p.pages), list(p.out), list(p.tokens)};
}

void put_verdict(posenc_verdict* to, posenc::MoveVerdict verdict) {
  if (to != nullptr) *to = static_cast<posenc_verdict>(verdict);
}

}  // namespace

extern "C" {

posenc_status posenc_rerotation_create(const posenc_plan* from, const posenc_plan* to,
                                       posenc_key_type type, int cut_blocks,
                                       posenc_rerotation** rerotation, posenc_error* error) {
  return guarded(error, [&] {
    posenc::RerotationPlan plan(need(from, "from").plan.spec(), need(to, "to").plan.spec(),
                                key_type_of(type), {.cut_blocks = cut_blocks != 0});
    need(rerotation, "rerotation") = new posenc_rerotation{std::move(plan)};
  });
}

void posenc_rerotation_free(posenc_rerotation* rerotation) {
  delete rerotation;
}

posenc_status posenc_rerotation_bound(const posenc_rerotation* rerotation, int64_t moves,
                                      double* bound, posenc_error* error) {
  return guarded(error,
                 [&] { need(bound, "bound") = need(rerotation, "rerotation").plan.bound(moves); });
}

posenc_status posenc_rerotation_move(const posenc_rerotation* rerotation, const char* layout,
                                     const PosencDLTensor* keys, const PosencDLTensor* out,
                                     const PosencDLTensor* old_positions,
                                     const PosencDLTensor* new_positions, posenc_verdict* verdict,
                                     posenc_error* error) {
  return guarded(error, [&] {
    const posenc::RerotationPlan& plan = need(rerotation, "rerotation").plan;
    const posenc::Heads from = keys_of(plan, layout, need(keys, "keys"));
    const posenc::Heads to = out == nullptr ? from : keys_of(plan, layout, *out);
    put_verdict(verdict,
                plan.move_into(from, to, positions_of(old_positions), positions_of(new_positions)));
  });
}

posenc_status posenc_rerotation_move_pages(const posenc_rerotation* rerotation, const char* layout,
                                           const PosencDLTensor* pool,
                                           const PosencDLTensor* out_pool,
                                           const posenc_key_pages* pages,
                                           const PosencDLTensor* old_positions,
                                           const PosencDLTensor* new_positions,
                                           posenc_verdict* verdict, posenc_error* error) {
  return guarded(error, [&] {
    const posenc::RerotationPlan& plan = need(rerotation, "rerotation").plan;
    const posenc::Heads from = keys_of(plan, layout, need(pool, "pool"));
    const posenc::Heads to = out_pool == nullptr ? from : keys_of(plan, layout, *out_pool);
    put_verdict(verdict,
                plan.move_pages_into(from, to, pages_of(need(pages, "pages")),
                                     positions_of(old_positions), positions_of(new_positions)));
  });
}

}  // extern "C"
