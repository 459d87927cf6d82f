// Package compare measures package larder against other clients, on the same server, and against a loop written by hand:
//
//	LARDER_SERVER=…/larder go test -run - -bench . -benchtime 1x
//
// Contenders take turns in rounds, in an order that is drawn anew in each. What is told is the processor time of this
// process, the client's, for an operation: the median of the rounds; and of each contender's ratio to ours in the same
// round the median, which is the figure that a busy machine changes least. Wall time says more about the machine.
package compare
