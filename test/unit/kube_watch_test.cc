// Watches against a server that misbehaves.
#include <atomic>
#include <thread>

#include "unit/kube_fixture.h"

namespace tranche::kube {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class KubeWatchTest : public KubeTest {
 protected:
  // Lists are served as `list` says; the n-th watch (from 0) by `stream`.
  [[nodiscard]] Serving ServeWatch(std::function<void(Connection&, int)> list, std::function<void(Connection&, int, const Received&)> stream) {
    return Serve([this, list = std::move(list), stream = std::move(stream)](Connection& connection, const Received& request) {
      if (!IsWatch(request)) return list(connection, lists_++);
      stream(connection, watches_++, request);
    });
  }
  static void GoodList(Connection& connection, int) { connection.Answer(200, ListText("10", ObjectText("a", "9"))); }
  static void Hang(Connection& connection) {
    connection.WaitUntilClientLeaves();
    connection.Close();
  }

  std::atomic<int> lists_ = 0, watches_ = 0;
  Recorder seen_;
};

TEST_F(KubeWatchTest, ListsThenFollowsWithSelectorBookmarksAndTimeout) {
  const Serving serving = ServeWatch(GoodList, [](Connection& connection, int, const Received&) {
    connection.BeginChunked();
    connection.Chunk(EventText("ADDED", "b", "11") + EventText("MODIFIED", "b", "12") + EventText("DELETED", "a", "13") +
                     R"({"type":"LATER"})"
                     "\n");
    Hang(connection);
  });
  const auto watch = client().Watch("/things?fieldSelector=x%3Dy", seen_.Handler());
  EXPECT_THAT(seen_.Lines(4), ElementsAre("list 1", "added b", "modified b", "deleted a"));
  const std::vector<Received> requests = server_->Requests();
  EXPECT_EQ(requests.at(0).path, "/things?fieldSelector=x%3Dy&limit=500");
  EXPECT_THAT(requests.at(1).path,
              testing::MatchesRegex("/things\\?fieldSelector=x%3Dy&watch=1&allowWatchBookmarks=true&resourceVersion=10&timeoutSeconds=[3456]..?"));
}

TEST_F(KubeWatchTest, EventsAreTheSameWhereverTheStreamIsCut) {
  const std::string stream = EventText("ADDED", "b", "11") + EventText("DELETED", "b", "12");
  const Serving serving = ServeWatch(GoodList, [&stream](Connection& connection, int count, const Received&) {
    // One cut after the other; in the end every byte is a chunk of its own.
    const auto cut = static_cast<std::size_t>(count) + 1;
    connection.BeginChunked();
    if (cut < stream.size()) {
      connection.Chunk(stream.substr(0, cut));
      connection.Chunk(stream.substr(cut));
    } else {
      for (const char byte : stream) connection.Chunk(std::string(1, byte));
    }
    if (cut > stream.size()) return Hang(connection);
    connection.EndChunks();
  });
  const auto watch = client().Watch("/things", seen_.Handler());
  const std::size_t streams = stream.size() + 1;
  const std::vector<std::string> lines = seen_.Lines(1 + 2 * streams);
  ASSERT_EQ(lines.size(), 1 + 2 * streams);
  for (std::size_t i = 0; i < streams; ++i) {
    ASSERT_EQ(lines[1 + 2 * i], "added b");
    ASSERT_EQ(lines[2 + 2 * i], "deleted b");
  }
  EXPECT_EQ(lists_, 1);
}

TEST_F(KubeWatchTest, GoesOnFromTheLastBookmarkWithoutANewList) {
  std::atomic<bool> from_bookmark = false;
  const Serving serving = ServeWatch(GoodList, [&](Connection& connection, int count, const Received& request) {
    connection.BeginChunked();
    if (count == 0) {
      connection.Chunk(EventText("BOOKMARK", "", "50") + R"({"type":"ADDED","object":{"metadata":{"name":"half)");
      return connection.Close();  // in the middle of an event
    }
    from_bookmark = request.path.find("resourceVersion=50&") != std::string::npos;
    connection.Chunk(EventText("ADDED", "c", "51"));
    Hang(connection);
  });
  const auto watch = client().Watch("/things", seen_.Handler());
  EXPECT_THAT(seen_.Lines(2), ElementsAre("list 1", "added c"));
  EXPECT_TRUE(from_bookmark);
  EXPECT_EQ(lists_, 1);
}

TEST_F(KubeWatchTest, ResetsAreReconnectsNotProblems) {
  const Serving serving = ServeWatch(GoodList, [](Connection& connection, int count, const Received&) {
    connection.BeginChunked();
    connection.Chunk(EventText("ADDED", "b" + std::to_string(count), "11"));
    if (count == 3) return Hang(connection);
    connection.Reset();
  });
  const auto watch = client().Watch("/things", seen_.Handler());
  const std::vector<std::string> lines = seen_.Lines(2);
  EXPECT_TRUE(test::Eventually([&] { return watches_ == 4; }));
  EXPECT_EQ(lists_, 1);
  for (const std::string& line : seen_.Lines(2)) EXPECT_THAT(line, testing::Not(HasSubstr("problem")));
}

TEST_F(KubeWatchTest, AVersionThatIsGoneBringsANewList) {
  const Serving serving = ServeWatch(GoodList, [](Connection& connection, int count, const Received&) {
    if (count == 0) return void(connection.Answer(410, StatusText(410, "Expired", "too old")));
    connection.BeginChunked();
    if (count == 1) {
      connection.Chunk(R"({"type":"ERROR","object":)" + StatusText(410, "Expired", "too old") + "}\n" + EventText("ADDED", "never", "12"));
      return void(connection.EndChunks());
    }
    connection.Chunk(EventText("ADDED", "b", "11"));
    Hang(connection);
  });
  const auto watch = client().Watch("/things", seen_.Handler());
  EXPECT_THAT(seen_.Lines(4), ElementsAre("list 1", "list 1", "list 1", "added b"));
}

TEST_F(KubeWatchTest, WhatIsNoEventIsAProblemAndANewList) {
  for (const std::string& bad : {std::string("{\"type\":\"ADDED\",\"object\":{\"a\":\"\xff\"}}\n"), std::string("<html>\n"),
                                 std::string(R"({"type":"ERROR","object":)" + StatusText(500, "InternalError", "m") + "}\n")}) {
    Recorder seen;
    client_.reset();
    lists_ = watches_ = 0;
    const Serving serving = ServeWatch(GoodList, [bad](Connection& connection, int count, const Received&) {
      connection.BeginChunked();
      if (count == 0) connection.Chunk(bad);
      Hang(connection);
    });
    const auto watch = client().Watch("/things", seen.Handler());
    const std::vector<std::string> lines = seen.Lines(4);
    ASSERT_EQ(lines.size(), 4U) << bad;
    EXPECT_THAT(lines[1], HasSubstr("problem")) << bad;
    EXPECT_EQ(lines[2], "list 1");
    EXPECT_EQ(lines[3], "works");
  }
}

TEST_F(KubeWatchTest, AnEventBeyondTheBoundIsAProblemAndANewList) {
  const Serving serving = ServeWatch(GoodList, [](Connection& connection, int count, const Received&) {
    connection.BeginChunked();
    const std::string mebibyte(1 << 20, 'x');
    for (int i = 0; count == 0 && i < 9; ++i) connection.Chunk(mebibyte);
    Hang(connection);
  });
  const auto watch = client().Watch("/things", seen_.Handler());
  EXPECT_THAT(seen_.Lines(4), ElementsAre("list 1", "problem RESOURCE_EXHAUSTED", "list 1", "works"));
}

TEST_F(KubeWatchTest, ProblemsAreToldWhenTheyBeginChangeAndEnd) {
  const Serving serving = ServeWatch(
      [](Connection& connection, int count) {
        if (count < 3) return void(connection.Answer(500, "oops"));
        if (count < 6) return void(connection.Answer(403, StatusText(403, "Forbidden", "m")));
        if (count == 6) return void(connection.Answer(200, "[]"));
        GoodList(connection, count);
      },
      [](Connection& connection, int, const Received&) {
        connection.BeginChunked();
        Hang(connection);
      });
  const auto watch = client().Watch("/things", seen_.Handler());
  EXPECT_THAT(seen_.Lines(5), ElementsAre("problem UNAVAILABLE", "problem PERMISSION_DENIED", "problem DATA_LOSS", "list 1", "works"));
}

TEST_F(KubeWatchTest, ARefusedTokenIsReadAgain) {
  const Serving serving = ServeWatch(GoodList, [](Connection& connection, int, const Received& request) {
    if (request.headers.at("authorization") != "Bearer second") return void(connection.Answer(401, StatusText(401, "Unauthorized", "m")));
    connection.BeginChunked();
    connection.Chunk(EventText("ADDED", "b", "11"));
    Hang(connection);
  });
  Connect(64);
  SetToken("second");
  const auto watch = client().Watch("/things", seen_.Handler());
  EXPECT_THAT(seen_.Lines(2), ElementsAre("list 1", "added b"));
}

TEST_F(KubeWatchTest, AServerThatComesBackIsFollowedFromWhereItEnded) {
  const Serving serving = ServeWatch(GoodList, [](Connection& connection, int, const Received&) {
    connection.BeginChunked();
    Hang(connection);
  });
  auto watch = client().Watch("/things", seen_.Handler());
  EXPECT_TRUE(test::Eventually([&] { return watches_ == 1; }));
  server_->Stop();
  EXPECT_THAT(seen_.Lines(2), ElementsAre("list 1", "problem UNAVAILABLE"));
}

TEST_F(KubeWatchTest, PagesThatExpireBeginAnew) {
  std::atomic<int> expired = 0;
  const Serving serving = Serve([&](Connection& connection, const Received& request) {
    if (IsWatch(request)) return Hang(connection);
    if (request.path == "/things?limit=500") return void(connection.Answer(200, ListText("7", ObjectText("a", "1"), "n1")));
    if (expired++ == 0) return void(connection.Answer(410, StatusText(410, "Expired", "m")));
    connection.Answer(200, ListText("7", ObjectText("b", "2")));
  });
  const auto watch = client().Watch("/things", seen_.Handler());
  EXPECT_THAT(seen_.Lines(1), ElementsAre("list 2"));
}

TEST_F(KubeWatchTest, NoCallbackComesAfterDestruction) {
  const Serving serving = ServeWatch(GoodList, [](Connection& connection, int, const Received&) {
    connection.BeginChunked();
    while (connection.Chunk(EventText("ADDED", "b", "11"))) {}
    connection.Close();
  });
  std::atomic<bool> alive = true;
  std::atomic<int> events = 0, late = 0;
  WatchHandler handler;
  handler.on_event = [&](WatchEvent, const json::object&) {
    ++events;
    if (!alive) ++late;
  };
  auto watch = client().Watch("/things", std::move(handler));
  EXPECT_TRUE(test::Eventually([&] { return events > 10; }));
  watch.reset();
  alive = false;
  EXPECT_EQ(client().Get("/things", DeadlineIn(10s)).status(), absl::OkStatus());  // the engine has gone on meanwhile
  EXPECT_EQ(late, 0);
}

TEST_F(KubeWatchTest, AWatchMayEndInItsOwnCallback) {
  const Serving serving = ServeWatch(GoodList, [](Connection& connection, int, const Received&) {
    connection.BeginChunked();
    connection.Chunk(EventText("ADDED", "b", "11") + EventText("ADDED", "c", "12"));
    Hang(connection);
  });
  std::mutex mutex;
  std::unique_ptr<Watch> watch;
  std::atomic<int> events = 0;
  WatchHandler handler;
  handler.on_event = [&](WatchEvent, const json::object&) {
    const std::lock_guard lock(mutex);
    watch.reset();
    ++events;
  };
  {
    const std::lock_guard lock(mutex);
    watch = client().Watch("/things", std::move(handler));
  }
  EXPECT_TRUE(test::Eventually([&] { return events == 1; }));
  EXPECT_EQ(client().Get("/things", DeadlineIn(10s)).status(), absl::OkStatus());
  EXPECT_EQ(events, 1);
}

TEST_F(KubeWatchTest, AWatchMayOutliveItsClient) {
  const Serving serving = ServeWatch(GoodList, [](Connection& connection, int, const Received&) { Hang(connection); });
  auto watch = client().Watch("/things", seen_.Handler());
  EXPECT_THAT(seen_.Lines(1), ElementsAre("list 1"));
  client_.reset();
  watch.reset();
}

TEST_F(KubeWatchTest, ManyWatchesAndCallsBeginAndEndAtTheSameTime) {
  const Serving serving = ServeWatch(GoodList, [](Connection& connection, int, const Received&) {
    connection.BeginChunked();
    connection.Chunk(EventText("ADDED", "b", "11"));
    Hang(connection);
  });
  Connect(8);
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        Recorder seen;
        const auto watch = client_->Watch("/things", seen.Handler());
        good += client_->Get("/things", DeadlineIn(20s)).ok() ? 1 : 0;
        if (round % 2 == 0) seen.Lines(2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 80);
}

}  // namespace
}  // namespace tranche::kube
