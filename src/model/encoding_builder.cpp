// SPDX-License-Identifier: Apache-2.0
#include "model/encoding_builder.h"

#include <algorithm>

#include "registry/encoding_fields.h"
#include "registry/grammar.h"
#include "registry/grammar_value.h"
#include "registry/scheme_arrays.h"

namespace posenc::inline v0 {

void EncodingBuilder::begin(std::string_view name) {
  if (begun_) {
    check_given();
    auto scaling = default_scaling(name);
    if (!scaling) refuse("scheme", "a scaling must be one of the registry", name);
    encoding_.scalings.push_back(std::move(*scaling));
  } else {
    auto scheme = default_scheme(name);
    if (!scheme) refuse("scheme", "a scheme must be one of the registry", name);
    encoding_.scheme = std::move(*scheme);
    begun_ = true;
  }
  given_.assign(refs().size(), false);
}

std::vector<FieldRef> EncodingBuilder::refs() {
  return encoding_.scalings.empty() ? field_refs(encoding_.scheme)
                                    : field_refs(encoding_.scalings.back());
}

std::string_view EncodingBuilder::part_name() const {
  return encoding_.scalings.empty() ? card(encoding_.scheme).name
                                    : encoding_.scalings.back().card().name;
}

std::string EncodingBuilder::full_name(std::string_view field) const {
  const std::string prefix =
      encoding_.scalings.empty() ? std::string() : std::string(part_name()) + ".";
  return prefix + std::string(field);
}

void EncodingBuilder::set(std::string_view field, Sourced<Json> v) {
  const std::vector<FieldRef> all = refs();
  fields_.push_back({full_name(field), std::move(v.value), v.origin, std::move(v.where)});
  try {
    given_[grammar::set_value(part_name(), field, all, fields_.back().value)] = true;
  } catch (const ArgumentError& problem) {
    if (refusal_) return;
    refusal_ = problem;
    refused_ = fields_.back().name;
  }
}

// What a part requires and nobody set.
void EncodingBuilder::check_given() {
  const std::vector<FieldRef> all = refs();
  for (std::size_t i = 0; i < all.size() && !refusal_; ++i)
    if (all[i].field.required && !given_[i])
      refusal_.emplace("scheme", all[i].name,
                       std::string(part_name()) + ": " + std::string(all[i].name) +
                           " must be given (" + std::string(all[i].field.doc) + ")",
                       "");
}

void EncodingBuilder::report(const ArgumentError& problem, Diagnostics& out,
                             const std::string& where) const {
  const auto named = [&](const FieldValue& f) {
    return refusal_ ? f.name == refused_
                    : f.name == problem.who() + "." + problem.field() || f.name == problem.field();
  };
  const auto field = std::ranges::find_if(fields_, named);
  const bool known = field != fields_.end();
  const bool user = known && field->origin == Origin::user;
  std::string fix = "assume a value that the scheme takes: posenc list NAME has them";
  if (!user && refusal_)
    fix = "state a value that the scheme takes: posenc list NAME has them";
  else if (!user)
    fix = std::string("the numbers of this file do not form a valid ") +
          (is_rotary(encoding_.scheme) ? "rotary " : "") + "encoding: " + to_text(encoding_);
  out.error("refused", problem.what(), known && !field->where.empty() ? field->where : where,
            std::move(fix));
}

std::optional<Encoding> EncodingBuilder::finish(Diagnostics& out, const std::string& where,
                                                const std::function<void(const Encoding&)>& check) {
  check_given();
  try {
    if (refusal_) throw *refusal_;
    check(encoding_);
    return encoding_;
  } catch (const ArgumentError& problem) {
    report(problem, out, where);
    return std::nullopt;
  }
}

std::vector<Parameter> parameters_of(const Encoding& e) {
  return detail::parameters_of(e.scheme, {.heads = 1, .head_dim = 1});
}

}  // namespace posenc::v0
