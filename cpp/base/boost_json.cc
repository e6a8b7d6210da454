// Boost.JSON is compiled here, once for all rooms.
#include <boost/json/src.hpp>
