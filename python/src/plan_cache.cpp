// SPDX-License-Identifier: Apache-2.0
#include "plan_cache.h"

#include <atomic>
#include <bit>
#include <list>
#include <mutex>
#include <utility>

namespace posenc::python {
namespace {

constexpr std::size_t kMostPlans = 32, kMostLowered = 2;

std::atomic<std::uint64_t>& lowerings() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

}  // namespace

struct KeptPlan::Recent {
  std::mutex mutex;
  std::list<LoweredAttention> lowered;  // the last used first
};

KeptPlan::KeptPlan(AttentionPlan plan)
    : plan_(std::move(plan)), recent_(std::make_unique<Recent>()) {}
KeptPlan::~KeptPlan() = default;

LoweredAttention KeptPlan::lower(std::span<const NamedArray> parameters,
                                 std::span<const DistanceRange> distance) {
  const auto found = [&](const LoweredAttention& l) { return l.is_current(parameters, distance); };
  {
    const std::lock_guard lock(recent_->mutex);
    std::list<LoweredAttention>& list = recent_->lowered;
    for (auto at = list.begin(); at != list.end(); ++at) {
      if (!found(*at)) continue;
      list.splice(list.begin(), list, at);
      return list.front();
    }
  }
  LoweredAttention made = plan_.lower(parameters, distance);
  count_lowering();
  const std::lock_guard lock(recent_->mutex);
  recent_->lowered.push_front(made);
  if (recent_->lowered.size() > kMostLowered) recent_->lowered.pop_back();
  return made;
}

std::string plan_key(const std::vector<std::string>& texts, const AttentionSizes& s, Index length) {
  std::string key;
  for (const std::string& text : texts) key += text + '\n';
  for (const Index n : {s.heads, s.head_dim, s.key_heads, s.value_dim, length})
    key += std::to_string(n) + ' ';
  return s.scale ? key + std::to_string(std::bit_cast<std::uint64_t>(*s.scale)) : key;
}

std::shared_ptr<KeptPlan> kept_plan(const std::string& key,
                                    const std::function<AttentionPlan()>& make) {
  using Entry = std::pair<std::string, std::shared_ptr<KeptPlan>>;
  static std::mutex& mutex = *new std::mutex;  // calls may come while the process ends
  static std::list<Entry>& plans = *new std::list<Entry>;
  {
    const std::lock_guard lock(mutex);
    for (auto at = plans.begin(); at != plans.end(); ++at) {
      if (at->first != key) continue;
      plans.splice(plans.begin(), plans, at);
      return at->second;
    }
  }
  const auto made = std::make_shared<KeptPlan>(make());
  const std::lock_guard lock(mutex);
  plans.emplace_front(key, made);
  if (plans.size() > kMostPlans) plans.pop_back();
  return made;
}

std::uint64_t lowered_count() noexcept {
  return lowerings();
}
void count_lowering() noexcept {
  ++lowerings();
}

}  // namespace posenc::python
