// SPDX-License-Identifier: Apache-2.0
// What the table of model types says of a class's layers: members of ClassRules.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/hugging_face/class_rules/names.h"
#include "posenc/io/json.h"

namespace posenc::hf {

// Which kind each layer is, where the file does not say: `rule` names the form, the rest are its parts.
struct LayerRules {
  std::string rule;
  std::string type;
  std::string key;
  std::optional<Index> n;
  std::string hit;
  std::string other;
  std::string phase;
  bool also_first = false;
  bool not_first = false;
  bool one_at_least = false;
  bool zero_without_window = false;
  std::string windows;
  std::string force_last;
  std::string with;
  std::string without;
  std::string period;
  std::string offset;
  bool always = false;
  NameMap codes;
  NameMap letters;
  NameMap names;
  Json cycle;
  Json held;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("rule", s.rule,
      "every, windows_from, windows_until, no_rope_layers, period, listed, letters, coded, blocks, "
      "cycle, repeated, all, or a class of its own (flint, lfm3, deepseek_v4, dots3, zamba, "
      "zamba2, sliding_if_window)");
    v("type", s.type, "the one type of every layer (all)");
    v("key", s.key, "the key of the file that the form reads");
    v("n", s.n, "every n-th layer is `hit` (every)");
    v("hit", s.hit, "type of the layers that the form picks");
    v("other", s.other, "type of the others");
    v("phase", s.phase, "which of n layers is hit: last (default), first, from_end");
    v("also_first", s.also_first, "layer 0 is hit too");
    v("not_first", s.not_first, "layer 0 is never hit");
    v("one_at_least", s.one_at_least, "with fewer than n layers the last is hit");
    v("zero_without_window", s.zero_without_window,
      "the class divides by zero where sliding_window is null");
    v("windows", s.windows, "a list of windows, one a layer, that names the types");
    v("force_last", s.force_last, "the last layer is full: always, or unless_stated");
    v("with", s.with, "type of layers with rotary (no_rope_layers)");
    v("without", s.without,
      "type of layers without (no_rope_layers); sliding_if_used: by use_sliding_window");
    v("period", s.period, "key of the period (period)");
    v("offset", s.offset, "key of the offset (period)");
    v("always", s.always, "without a list no layer is hit (listed)");
    v("codes", s.codes, "type of each code (coded)");
    v("letters", s.letters, "type of each letter (letters)");
    v("names", s.names, "type of each name (cycle, repeated)");
    v("cycle", s.cycle, "names in turn, where the file has none (cycle)");
    v("default", s.held, "what stands for a file that says nothing (letters, repeated)");
  }
};

// How many layers, where no one key says it.
struct LayerCountRules {
  std::optional<Index> fixed;
  std::string sum;
  std::vector<std::string> keys;
  std::string key;
  std::optional<Index> times;
  bool cycles = false;
  Json held;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("fixed", s.fixed, "always as many");
    v("sum", s.sum, "a list whose sum counts");
    v("keys", s.keys, "stacks that are counted one by one");
    v("key", s.key, "counts `times` layers each (LongCat-Flash)");
    v("times", s.times, "layers for each that `key` counts");
    v("cycles", s.cycles, "H_cycles (L_cycles + 1) runs of the stack (HRM)");
    v("default", s.held, "what stands for a file that says nothing");
  }
};

// A key that counts before the window's own.
struct FirstWindow {
  std::string key;
  Index plus = 0;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("key", s.key, "the key");
    v("plus", s.plus, "added to its value");
  }
};

// Where the window of sliding layers comes from.
struct WindowRules {
  std::string key;
  std::string on;
  std::string switch_key;
  std::optional<FirstWindow> first;
  std::string listed;
  std::string set_by;
  std::optional<Index> divide;
  bool both = false;
  std::optional<Index> every_second;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("key", s.key, "the key that holds it");
    v("on", s.on, "all: every layer slides");
    v("switch", s.switch_key, "without this switch there is none");
    v("first", s.first, "a key that counts before it (MiMo-V2-Flash)");
    v("listed", s.listed, "a list of windows, of which the first above 0 counts (UltraBERT)");
    v("set_by", s.set_by, "keys to each side, over the key (ModernBERT)");
    v("divide", s.divide, "the window is divided by it");
    v("both", s.both, "keys to both sides");
    v("every_second", s.every_second, "window of every second sliding layer (NeoMME)");
  }
};

// A number a layer that names its type.
struct CodedTypes {
  std::string key;
  NameMap names;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("key", s.key, "the list");
    v("names", s.names, "type of each number");
  }
};

}  // namespace posenc::hf
