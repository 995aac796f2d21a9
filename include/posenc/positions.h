// SPDX-License-Identifier: Apache-2.0
// Positions are always explicit: 64-bit integers or doubles; negative, repeated and huge values are
// valid. Order (the index of a token in storage) is another thing: masks use order.
#pragma once
#include "posenc/positions/cache.h"
#include "posenc/positions/distance_map.h"
#include "posenc/positions/glm.h"
#include "posenc/positions/grid.h"
#include "posenc/positions/modalities.h"
#include "posenc/positions/mrope.h"
#include "posenc/positions/omni.h"
#include "posenc/positions/random.h"
#include "posenc/positions/rule.h"
#include "posenc/positions/sequence.h"
#include "posenc/positions/shard.h"
#include "posenc/positions/view.h"
#include "posenc/positions/xd_rope.h"
