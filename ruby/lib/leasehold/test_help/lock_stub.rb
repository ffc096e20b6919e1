# frozen_string_literal: true

require "leasehold/locks"

module Leasehold
  module TestHelp
    # Takes the place of the generated stubs of gRPC for sessions and locks: the same methods and messages. The engine
    # answers in this process. The engine's refusals are raised as classes of {Error}, without a gRPC status.
    class LockStub
      Wire = Contract::Leasehold::Locks::V1
      Sessions = Contract::Leasehold::Sessions::V1
      # The result of a call with `return_op: true`. A stream that is cancelled has nothing to free.
      Operation = Struct.new(:execute, :metadata) do
        def cancel; end
      end
      # The most locks of one acquire.
      MAX_LOCKS_TOGETHER = 16
      private_constant :Wire, :Sessions, :Operation, :MAX_LOCKS_TOGETHER

      # @param server [LockServer]
      def initialize(server)
        @server = server
        @ask_ids = {}
      end

      def open_session(request, **)
        change { |service, now| service.open(request.session_id, request.duration_micros, request.grace_micros, now) }
        answer(Sessions::OpenSessionResponse.new)
      end

      def renew_session(request, **)
        fences = @server.call { |service, now| service.renew(request.session_id, now) }
        answer(Sessions::RenewSessionResponse.new(forced_fences: fences))
      end

      def close_session(request, **)
        change { |service, now| service.close(request.session_id, now) }
        answer(Sessions::CloseSessionResponse.new)
      end

      def try_acquire_lock(request, **)
        fence, slot, = acquire(request, 0)
        answer(Wire::TryAcquireLockResponse.new(fence: fence, slot: slot))
      end

      # @return [Operation] with the messages of a stream
      def acquire_lock(request, **)
        answer(enum_for(:each_news, request))
      end

      # @return [Operation] with the messages of a stream
      def acquire_locks(request, **)
        answer(enum_for(:each_news_of_all, request))
      end

      def leave_lock(request, **)
        leave(request)
        answer(Wire::LeaveLockResponse.new)
      end

      def release_lock(request, **)
        change do |service, now|
          service.release(request.session_id, path(request.lock), request.fence, request.failed, request.value, now)
        end
        answer(Wire::ReleaseLockResponse.new)
      end

      def get_lock(request, **)
        members = @server.call { |service| service.lock(path(request.lock)) }
        lock = members ? lock(*members) : Wire::Lock.new(path: request.lock, state: :FREE)
        answer(Wire::GetLockResponse.new(lock: lock))
      end

      def list_locks(request, **)
        locks, truncated = @server.call do |service|
          service.locks(request.namespace, request.limit, request.after && path(request.after))
        end
        answer(Wire::ListLocksResponse.new(locks: locks.map { |members| lock(*members) }, truncated: truncated))
      end

      def force_lock(request, **)
        change { |service, now| service.force(path(request.lock), request.fence, request.at_once, now) }
        @server.tell_processes
        answer(Wire::ForceLockResponse.new)
      end

      # @return [Operation] with the message of a stream
      def reap_lock(request, deadline:, **)
        answer(enum_for(:each_orphan, request, deadline))
      end

      def resolve_orphan(request, **)
        change { |service, now| service.resolve(path(request.lock), request.fence, request.resolution == :CLEANED, now) }
        answer(Wire::ResolveOrphanResponse.new)
      end

      private

      # Yields the place of an ask that waits, then its grant.
      #
      # @raise [Error::LockHeld] if the wait is over; the ask has left the queue
      # @raise [Error::LockCircle] if the caller waits for a lock of its own
      def each_news(request)
        fence, slot, ahead = acquire(request, request.wait_micros)
        unless fence
          refuse_circle([request], request.held_ask_ids)
          yield Wire::AcquireLockResponse.new(waiting: ahead)
          fence, slot = wait_for(request) || give_up(request)
        end
        yield Wire::AcquireLockResponse.new(fence: fence, slot: slot)
      end

      # Yields the number of locks that are waited for, then the grants of all.
      #
      # @raise [Error::LockHeld] if the wait is over; the asks have left the queues
      # @raise [Error::LockCircle] if the caller waits for a lock of its own
      def each_news_of_all(request)
        check_names(request.asks.map { |ask| path(ask.lock) })
        grants = acquire_all(request)
        unless grants.all?(&:first)
          refuse_circle(request.asks.to_a, request.held_ask_ids, leaves(request))
          yield Wire::AcquireLocksResponse.new(waiting: grants.count { |fence, *| fence.nil? })
          grants = wait_for_all(request, grants.filter_map(&:first)) || give_up(*leaves(request))
        end
        locks = grants.map { |fence, slot, *| Wire::GrantedLock.new(fence: fence, slot: slot) }
        yield Wire::AcquireLocksResponse.new(granted: { locks: locks })
      end

      # The bindings know one ask only, so the rules for several are repeated here (core, `AcquireAll::parse`).
      def check_names(paths)
        if paths.size > MAX_LOCKS_TOGETHER
          text = "a limit is exceeded: `locks_together` is #{paths.size}, at most #{MAX_LOCKS_TOGETHER} is allowed"
          raise Error.from_engine("LIMIT_EXCEEDED", text, [])
        end
        text = "no lock is named: name at least one" if paths.empty?
        text = "a lock is named twice: name each lock once" if paths.uniq.size < paths.size
        raise Error.from_engine("INVALID_UPDATE", "the request is not valid: #{text}", []) if text
      end

      # Asks for all locks, in a copy first: if the engine refuses one of the asks there, none is asked here.
      #
      # @return [Array<Array>] the result of {#acquire} for each
      def acquire_all(request)
        @server.call do |service, now|
          [service.copy(0), service].map { |each| request.asks.map { |ask| ask_for(each, request, ask, now) } }.last
        end
      end

      # @return [Array<Array>, nil] the grants; nil if the wait is over, or an operator took one of the first grants
      def wait_for_all(request, kept)
        result = @server.await(request.wait_micros / 1e6) do
          taken = @server.call { |service, now| service.renew(request.session_id, now) }
          next [] if (taken & kept).any?

          grants = acquire_all(request)
          grants if grants.all?(&:first)
        end
        result if result&.any?
      end

      def leaves(request)
        request.asks.map { |ask| Wire::LeaveLockRequest.new(session_id: request.session_id, ask_id: ask.ask_id) }
      end

      # Yields an orphaned lock, which the session then holds.
      #
      # @raise [GRPC::DeadlineExceeded] if the wait is over
      def each_orphan(request, deadline)
        # gRPC's time for a wait that is over is no Time.
        seconds = deadline.is_a?(Time) ? deadline - Time.now : 0
        orphan = @server.await(seconds) { reap(request) }
        raise GRPC::DeadlineExceeded, "no lock was orphaned" unless orphan

        held = lock(*orphan)
        yield Wire::ReapLockResponse.new(orphan: { lock: held.path, fence: held.fence, obituary: held.obituary })
      end

      def reap(request)
        @server.call { |service, now| service.reap(request.session_id, request.ask_id, request.namespace, now) }
      end

      # The engine answers a repeated acquire with the grant that the ask has got meanwhile (K05).
      def wait_for(request)
        @server.await(request.wait_micros / 1e6) do
          granted = acquire(request, request.wait_micros)
          granted if granted.first
        end
      end

      def give_up(*requests)
        requests.each { |request| leave(request) }
        raise Error.from_engine("LOCK_HELD", "the lock is not free", [])
      end

      # Refuses an ask for a lock that the caller holds alone itself: that wait never ends (K15). Unlike a server, the stub
      # looks for no longer circles, because the bindings have no search for them.
      #
      # @param asks [Array<Object>] messages with the members of an ask
      # @param held_ask_ids [Enumerable<String>] the asks that the caller holds
      # @param leaves [Array<Object>] a message with the ids of each ask that waits
      def refuse_circle(asks, held_ask_ids, leaves = asks)
        return unless asks.any? { |ask| held_ask_ids.include?(holder(ask.lock)) }

        leaves.each { |request| leave(request) }
        text = "the wait would never end: the caller holds the lock itself, and must release it first"
        raise Error.from_engine("LOCK_CIRCLE", text, [])
      end

      # @return [String, nil] the id of the ask that holds the lock alone, if it is one of this process
      def holder(lock)
        @server.call do |service|
          _, state, fence, = service.lock(path(lock))
          @ask_ids[fence] if state == "HELD"
        end
      end

      # @return [Array(Integer, Integer, Integer)] the fence and the slot, or else nil, 0 and the place in the queue
      def acquire(request, wait_micros)
        @server.call { |service, now| ask_for(service, request, request, now, wait_micros) }
      end

      # @param ask [Object] a message with the members of an ask
      def ask_for(service, request, ask, now, wait_micros = request.wait_micros)
        acquired = service.acquire(request.session_id, ask.ask_id, path(ask.lock), [ask.shared, ask.permits], wait_micros, now)
        @ask_ids[acquired.first] = ask.ask_id if acquired.first
        acquired
      end

      def leave(request)
        change { |service, now| service.leave(request.session_id, request.ask_id, now) }
      end

      def change(&block)
        @server.change(&block)
      end

      def answer(response)
        Operation.new(response, {})
      end

      def path(lock)
        [lock&.namespace.to_s, lock&.key.to_s, lock&.slot.to_i]
      end

      def lock(path, state, fence, session_id, updated_at, waiting, last, obituary, division)
        path = %i[namespace key slot].zip(path).to_h
        taken_slots, permits = division
        Wire::Lock.new(
          path: path, taken_slots: taken_slots, permits: permits, state: state.to_sym, fence: fence, session_id: session_id.to_s,
          updated_at: time(updated_at), waiting: waiting, last: last && ended(*last),
          obituary: obituary && obituary_of(*obituary)
        )
      end

      def ended(fence, reason, value, ended_at)
        Wire::EndedGrant.new(fence: fence, end: reason.to_sym, value: value, ended_at: time(ended_at))
      end

      def obituary_of(fence, reason, ended_at, attempts, most_attempts)
        Wire::Obituary.new(
          fence: fence, end: reason.to_sym, ended_at: time(ended_at), attempts: attempts, most_attempts: most_attempts
        )
      end

      def time(micros)
        seconds, rest = micros.divmod(1_000_000)
        Contract::Google::Protobuf::Timestamp.new(seconds: seconds, nanos: rest * 1000)
      end
    end
  end
end
