// SPDX-License-Identifier: Apache-2.0
// posenc advise: schemes in the order of measured and published numbers.
#include <memory>

#include "advice/advice.h"
#include "common.h"
#include "posenc/report/verb.h"
#include "utf8.h"

namespace posenc::report {
namespace {

Verb::Run declare_advise(Words& w) {
  auto o = std::make_shared<AdviceOptions>();
  const Index most = Index{1} << 40;
  w.whole("--trained", o->trained, 1, most, "N",
          "tokens of a text in training (default: the checkpoint's own)");
  w.whole("--wanted", o->wanted, 1, most, "N", "the length to reach, in tokens").required();
  w.flag("--decoder", o->decoder, "for a decoder (the default)");
  w.flag("--encoder", o->encoder, "for an encoder, without a causal mask");
  w.text("--task", o->task, "T",
         "lm, recall (a passkey far back), addressing (a token at a distance), "
         "state (flip-flop),\n"
         "copy, direction (left or right), translate")
      .one_of({"lm", "recall", "addressing", "state", "copy", "direction", "translate"})
      .otherwise("lm");
  Word& model = w.text("--checkpoint", o->checkpoint.text, "MODEL",
                       "rank scalings of this model's own rotary encoding instead of schemes");
  model.is_model = true;
  w.reading(o->checkpoint, false);
  w.text("--results", o->results, "F",
         "results.jsonl of the lab, or its folder (default: the packaged "
         "results)")
      .file();
  w.json();
  return [o](const Request& r) -> Report {
    const Advice a = advise(*o);
    return {.code = a.ranking.empty() ? kNegative : kSuccess,
            .text = r.json ? in_utf8(advice_json(a)).dump(2) + "\n" : advice_text(a, {r.color})};
  };
}

}  // namespace

const Verb advise_verb{"advise",
                       "rank schemes or scalings for a length by measured and published numbers",
                       &declare_advise,
                       "Schemes without a number are not recommended. docs/advise.md says how "
                       "they are ranked.\n"
                       "Examples:\n"
                       "  posenc advise --trained 2048 --wanted 16384 --task recall\n"
                       "  posenc advise --wanted 32768 --checkpoint models/llama --json\n"
                       "  posenc advise --trained 64 --wanted 512 --encoder --results "
                       "runs/results.jsonl\n"
                       "Exit code: 1 if nothing can be ranked.",
                       true};

}  // namespace posenc::report
