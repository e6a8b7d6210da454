"""Slow twin of response_cache/flight_table.h: a list of flights, searched from the front."""


class FlightTable:
    def __init__(self, followers, promotions, alone_ns):
        self.followers, self.promotions, self.alone_ns = followers, promotions, alone_ns
        self.flights = []  # [key, leader, followers, promotions so far]
        self.alone_until = {}
        self.news = []

    def of_key(self, key):
        return next((flight for flight in self.flights if flight[0] == key), None)

    def of_leader(self, request):
        return next(flight for flight in self.flights if flight[1] == request)

    def join(self, request, key, may_follow, now):
        if self.alone_until.get(key, now) > now:
            return "alone"
        flight = self.of_key(key)
        if flight is None:
            self.flights.append([key, request, [], 0])
            return "leads"
        if not may_follow or len(flight[2]) >= self.followers:
            return "alone"
        flight[2].append(request)
        return "follows"

    def leave(self, request):
        for flight in self.flights:
            if request in flight[2]:
                flight[2].remove(request)
                return True
        return False

    def has_followers(self, request):
        return bool(self.of_leader(request)[2])

    def finish(self, request, end, response, now):
        flight = self.of_leader(request)
        if end == "failed" and flight[2] and flight[3] < self.promotions:
            flight[1] = flight[2].pop(0)
            flight[3] += 1
            self.news.append((flight[1], "lead", None))
            return
        if end == "not shareable" and self.alone_until.get(flight[0], now) <= now:
            self.alone_until[flight[0]] = now + self.alone_ns
        self.flights.remove(flight)
        for follower in flight[2]:
            shared = end == "shared"
            self.news.append((follower, "response" if shared else "alone", response if shared else None))

    def take_news(self):
        news, self.news = self.news, []
        return news
