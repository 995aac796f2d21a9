// SPDX-License-Identifier: Apache-2.0
// posenc rerotate: moves cached keys of a file to other positions or to another rotation.
#include <fmt/format.h>

#include <memory>

#include "common.h"
#include "heads_order.h"
#include "posenc/core/error.h"
#include "posenc/report/verb.h"
#include "posenc/rotary/rerotation_plan.h"
#include "utf8.h"

namespace posenc::report {
namespace {

struct RerotateOptions {
  std::string keys, from, to, old_positions, new_positions, order;
  std::optional<Index> context, layer;
  bool cut_blocks = false, check = false;
};

// What became of the keys.
struct Answer {
  MoveVerdict verdict = MoveVerdict::refused;
  std::string reason;
  std::optional<double> bound;
  bool blocks = false;  // q8_0: the bound is relative to the largest number of a block
};

RotarySpec rotation_of(const RerotateOptions& o, const std::string& text) {
  SubjectOptions subject;
  subject.text = text, subject.context = o.context, subject.layer = o.layer;
  return rotary_of(read_subject(subject), subject);
}

void check_counts(const RerotateOptions& o, const PositionList& list, const char* option,
                  const Heads& keys) {
  if (list.owned.count() != keys.tokens)
    throw InputError(fmt::format("{}: has {} tokens, and {} are {}", o.keys, keys.tokens, option,
                                 list.owned.count()));
  if (list.owned.batch != 1 && list.owned.batch != keys.batch)
    throw InputError(fmt::format("{}: has a batch of {}, and {} have {} rows", o.keys, keys.batch,
                                 option, list.owned.batch));
}

// u8 arrays are blocks of q8_0.
KeyType type_of(const Array& a) {
  return a.dtype == DType::u8 ? KeyType::q8_0 : key_type_of(a.dtype);
}

Answer moved_in_place(const RerotateOptions& o, Array& a) {
  const RotarySpec from = rotation_of(o, o.from);
  const RotarySpec to = o.to.empty() ? from : rotation_of(o, o.to);
  const HeadsLayout order = heads_order(a, o.order, "KEYS");
  const KeyType type = type_of(a);
  const Heads keys = type == KeyType::q8_0 ? key_blocks(a.view(), order) : heads(a.view(), order);
  const PositionList old_list = read_positions(o.old_positions);
  const PositionList new_list = read_positions(o.new_positions);
  check_counts(o, old_list, "--old-positions", keys);
  check_counts(o, new_list, "--new-positions", keys);
  Answer answer;
  answer.blocks = type == KeyType::q8_0;
  const Rerotation can = can_rerotate(from, to);
  answer.reason = can.reason;
  if (can.verdict == MoveVerdict::refused) return answer;
  try {
    const RerotationPlan plan(from, to, type, {.cut_blocks = o.cut_blocks});
    answer.verdict = plan.move(keys, spread_over_axes(old_list, from.axes()),
                               spread_over_axes(new_list, to.axes()));
    answer.bound = answer.verdict == MoveVerdict::moved ? plan.bound() : 0;
    if (answer.verdict == MoveVerdict::kept)
      answer.reason = "no key changes its position";
    else if (can.verdict == MoveVerdict::kept)
      answer.reason = "one rotation: keys move by p' - p";
  } catch (const ArgumentError& e) {
    answer.reason = e.what();
  }
  return answer;
}

std::string answer_text(const RerotateOptions& o, const Answer& a, const Style& style) {
  std::string text = fmt::format("{}: {}\n", style.bold(enum_text(a.verdict)), a.reason);
  if (a.verdict != MoveVerdict::moved) return text;
  text += fmt::format("error of a pair: at most {:.1e} of {}\n", *a.bound,
                      a.blocks ? "the largest number of its blocks" : "its length");
  if (o.check) text += "--check: nothing is written\n";
  return text +
         "Moved keys are not recomputed: below the first layer they depend on hidden states that "
         "saw the old positions.\n";
}

Json answer_json(const Answer& a, const std::string& path) {
  Json json = Json::object(
      {{"schema", "posenc.rerotate/1"}, {"verdict", enum_text(a.verdict)}, {"reason", a.reason}});
  json.set("bound", a.bound ? Json(*a.bound) : Json());
  json.set("output", path.empty() ? Json() : Json(utf8(path)));
  return json;
}

Report rerotate_keys(const RerotateOptions& o, const Request& r) {
  if (o.check && !r.path.empty()) throw UsageError("--check writes nothing: leave out -o");
  if (!o.check && r.path.empty()) throw UsageError("rerotate needs -o F, or --check");
  Array keys = read_array(o.keys, "keys");
  if (!is_float(keys.dtype) && keys.dtype != DType::u8)
    throw InputError(fmt::format("{}: must be f64, f32, f16, bf16 or u8 (blocks of q8_0), got {}",
                                 o.keys, dtype_name(keys.dtype)));
  const Answer a = moved_in_place(o, keys);
  const bool writes = !o.check && a.verdict != MoveVerdict::refused;
  Report report;
  report.code = a.verdict == MoveVerdict::refused ? kNegative : kSuccess;
  const std::string text = r.json ? in_utf8(answer_json(a, writes ? r.path : "")).dump(2) + "\n"
                                  : answer_text(o, a, Style{r.color});
  if (writes) {
    Arrays arrays;
    arrays.emplace("keys", std::move(keys));
    const std::vector<std::byte> bytes = bytes_of(arrays, array_format({r.path, r.format}));
    report.bytes.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    report.written = r.path + "\n";
  }
  report.text = text;
  return report;
}

Verb::Run declare_rerotate(Words& w) {
  auto o = std::make_shared<RerotateOptions>();
  w.text("KEYS", o->keys, "",
         "rotated keys: F.npy, F.safetensors or F.safetensors:NAME (default name: keys); u8 holds "
         "blocks of q8_0")
      .required()
      .file();
  w.text("--from", o->from, "MODEL|SCHEME", "the rotation that the keys have").required().file();
  w.text("--to", o->to, "MODEL|SCHEME", "the rotation that they get (default: as --from)").file();
  w.text("--old-positions", o->old_positions, "P", "A:B[:STEP], a list or an .npy")
      .required()
      .file();
  w.text("--new-positions", o->new_positions, "P", "likewise").required().file();
  w.whole("--layer", o->layer, 0, 65535, "N", "layer of a model (default: its first rotary layer)");
  w.whole("--context", o->context, 1, kMost, "N", "length for scalings that depend on it");
  w.text("--order", o->order, "ORDER",
         "axes: thd (rank 3), bthd, bhtd or tbhd (rank 4, must be given)");
  w.flag("--cut-blocks", o->cut_blocks,
         "q8_0: also rewrite blocks that the end of the rotated window cuts");
  w.flag("--check", o->check, "only print the verdict and the bound");
  w.output(Holds::one_array, "F.safetensors (keys), F.npy or F.csv");
  return [o](const Request& r) { return rerotate_keys(*o, r); };
}

}  // namespace

const Verb rerotate_verb{
    "rerotate", "move cached keys to other positions or to another rotation", &declare_rerotate,
    "The verdict is kept (the stored numbers stay), moved (rewritten once, within the bound) or "
    "refused (exit code 1,\nnothing is written).\n"
    "Examples:\n"
    "  posenc rerotate cache.safetensors --from config.json --old-positions 512:1024 "
    "--new-positions 0:512 -o moved.safetensors\n"
    "  posenc rerotate cache.npy --from \"rope head_dim=128 pairing=half_split\" --to \"rope "
    "head_dim=128 pairing=half_split + linear factor=4\" --old-positions 0:512 --new-positions "
    "0:512 --check --json"};

}  // namespace posenc::report
